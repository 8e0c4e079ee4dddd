//! A child process that does not outlive its guard.

use std::process::{Child, Command};

use super::{Namespace, NetnsError, cgroup::Cgroup};

/// A child process, killed and waited for on drop.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

impl Process {
    /// Starts a command in a namespace, and in a cgroup if one is given.
    ///
    /// # Errors
    /// When it cannot be placed or started.
    pub fn spawn(command: &mut Command, namespace: &Namespace, cgroup: Option<&Cgroup>) -> Result<Self, NetnsError> {
        namespace.place(command, cgroup)?;
        let child = command.spawn().map_err(|error| NetnsError::Command {
            command: format!("{command:?}").replace('"', ""),
            reason: error.to_string(),
        })?;
        Ok(Self { child })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The child itself, for its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Kills it now and waits for its end.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
