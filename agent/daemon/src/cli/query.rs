//! The query string of a request.

use super::{Failure, client::segment};

/// `?key=value&...`, or nothing when no value is given.
#[derive(Debug, Default)]
pub(super) struct Query(String);

impl Query {
    /// Adds a pair, if there is a value.
    pub(super) fn with(mut self, key: &str, value: Option<&str>) -> Self {
        if let Some(value) = value {
            self.0.push(if self.0.is_empty() { '?' } else { '&' });
            self.0.push_str(&format!("{key}={}", segment(value)));
        }
        self
    }

    /// Adds a pod, given as `NAME` or `NAMESPACE/NAME`, and a namespace, given by itself or in front of the pod.
    ///
    /// # Errors
    /// When both are given and differ.
    pub(super) fn with_pod(self, namespace: Option<&str>, pod: Option<&str>) -> Result<Self, Failure> {
        let (in_front, name) = match pod.map(|pod| pod.split_once('/').map_or((None, pod), |(a, b)| (Some(a), b))) {
            Some((in_front, name)) => (in_front, Some(name)),
            None => (None, None),
        };
        if let (Some(namespace), Some(in_front)) = (namespace, in_front)
            && namespace != in_front
        {
            let pod = pod.unwrap_or_default();
            return Err(Failure::wrong(format!("--pod {pod:?} is not in --namespace {namespace:?}")));
        }
        Ok(self.with("namespace", in_front.or(namespace)).with("pod", name))
    }

    pub(super) fn of(self, path: &str) -> String {
        format!("{path}{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_given_alone_or_with_their_namespace() {
        let path = |namespace, pod| Query::default().with_pod(namespace, pod).map(|query| query.of("/v1/x"));
        assert_eq!(path(None, None).unwrap(), "/v1/x");
        assert_eq!(path(None, Some("a b")).unwrap(), "/v1/x?pod=a%20b");
        assert_eq!(path(None, Some("n/a")).unwrap(), "/v1/x?namespace=n&pod=a");
        assert_eq!(path(Some("n"), Some("n/a")).unwrap(), "/v1/x?namespace=n&pod=a");
        assert_eq!(path(Some("n"), Some("a")).unwrap(), "/v1/x?namespace=n&pod=a");
        let failure = path(Some("m"), Some("n/a")).unwrap_err();
        assert!(failure.lines().any(|line| line.contains("\"n/a\" is not in --namespace \"m\"")));
    }
}
