//! What runs a pod, by the place of its processes among the cgroups: what restarts the pod depends on it.

use storewatch_core::pod::Manager;

/// Characters of a container's id that its own tools show.
const SHORT_ID: usize = 12;

/// By a path in any hierarchy.
pub(super) fn of_path(path: &str) -> Manager {
    let parts: Vec<_> = path.split('/').filter(|part| !part.is_empty()).collect();
    if parts.iter().any(|part| *part == "kubepods" || part.ends_with("kubepods.slice")) {
        return Manager::Kubernetes;
    }
    for (index, part) in parts.iter().enumerate().rev() {
        // docker-ID.scope with systemd's driver, /docker/ID with the other.
        let scope = part.strip_prefix("docker-").and_then(|rest| rest.strip_suffix(".scope"));
        let below = (index > 0 && parts[index - 1] == "docker").then_some(*part);
        if let Some(id) = scope.or(below).filter(|id| is_id(id)) {
            return Manager::Docker(id.get(..SHORT_ID).unwrap_or(id).into());
        }
        if let Some(unit) = part.strip_suffix(".service").filter(|unit| !unit.is_empty() && is_unit(unit)) {
            return Manager::Unit(format!("{unit}.service").into());
        }
    }
    Manager::Unknown
}

/// By `/proc/PID/cgroup`: the first hierarchy that tells.
pub(super) fn of_table(table: &str) -> Manager {
    let paths = table.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    paths.map(of_path).find(|manager| *manager != Manager::Unknown).unwrap_or_default()
}

fn is_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// It ends in a command that people copy.
fn is_unit(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.@:\\".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_tell_what_runs_a_process() {
        let id = "0123456789abcdef".repeat(4);
        let rows = [
            ("/kubepods/burstable/pod1/".to_owned() + &id, Manager::Kubernetes),
            (
                "/sys/fs/cgroup/kubepods.slice/kubepods-pod1.slice/cri-containerd-1.scope".to_owned(),
                Manager::Kubernetes,
            ),
            ("/kind/kubelet-kubepods.slice/x".to_owned(), Manager::Kubernetes),
            ("/system.slice/server.service".to_owned(), Manager::Unit("server.service".into())),
            ("/system.slice/server@1.service/payload".to_owned(), Manager::Unit("server@1.service".into())),
            (format!("/system.slice/docker-{id}.scope"), Manager::Docker("0123456789ab".into())),
            (format!("/docker/{id}"), Manager::Docker("0123456789ab".into())),
            ("/user.slice/user-0.slice/session-1.scope".to_owned(), Manager::Unknown),
            ("/docker/short".to_owned(), Manager::Unknown),
            ("/system.slice/$(reboot).service".to_owned(), Manager::Unknown),
            ("/".to_owned(), Manager::Unknown),
        ];
        for (path, manager) in rows {
            assert_eq!(of_path(&path), manager, "{path}");
        }
        assert_eq!(of_table("3:memory:/a\n1:name=systemd:/system.slice/a.service\n0::/\n"), of_path("/a.service"));
        assert_eq!(of_table("nonsense\n"), Manager::Unknown);
    }
}
