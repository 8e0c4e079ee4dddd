//! The `storewatch` binary.
use std::process::ExitCode;
fn main() -> anyhow::Result<ExitCode> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["run", "--config", path] => {
            let config = storewatch::config::load(path.as_ref(), &storewatch::config::Surroundings::of_process(vec![]))
                .map_err(|e| anyhow::anyhow!("{e}"))?;
            tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()?
                .block_on(storewatch::app::run(config))
        }
        ["demo", "--part", part] => storewatch::demo::run_part(part.parse().map_err(anyhow::Error::msg)?),
        ["demo"] => storewatch::demo::run(false),
        ["demo", "--keep"] => storewatch::demo::run(true),
        _ => anyhow::bail!("usage"),
    }
}
