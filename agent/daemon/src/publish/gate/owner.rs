//! Whose the Leases are: the agents' own ServiceAccount, so that Kubernetes removes them with it, however the agents are
//! taken away (`helm uninstall`, `kubectl delete -k`).
//!
//! Of all objects of a release it is the one that an agent knows without a right: the API server tells everybody who they
//! are (a SelfSubjectReview). The DaemonSet would need `get` on it, and a removal by hand `delete` on Leases.

use crate::kubernetes::{
    client::call,
    failure::{Failure, Why},
};
use http::{Request, header};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::OnceCell;

/// The question.
const PATH: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// Asked for once, and only by an agent that makes a Lease.
pub(super) struct Owner {
    client: Client,
    known: OnceCell<Option<OwnerReference>>,
}

/// The API server's answer, as far as it is needed.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Review {
    status: ReviewStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ReviewStatus {
    user_info: UserInfo,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct UserInfo {
    username: String,
    uid: String,
}

impl Owner {
    /// Not asked yet.
    pub(super) fn new(client: Client) -> Self {
        Self { client, known: OnceCell::new() }
    }

    /// What a new Lease is to refer to. Empty for an agent that is no ServiceAccount of the Leases' namespace (one on a
    /// host, with a kubeconfig), and where the API server does not say: such a Lease stays when the agent goes.
    ///
    /// # Errors
    /// When the API server gives no answer at present. A Lease that was made without an owner would stay without: to
    /// write one later takes the right to delete, where OwnerReferencesPermissionEnforcement is on.
    pub(super) async fn references(&self) -> Result<Option<Vec<OwnerReference>>, Failure> {
        let ask = || async {
            let question = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
            let request = Request::post(PATH).header(header::CONTENT_TYPE, "application/json");
            let Ok(request) = request.body(question.to_string().into_bytes()) else { return Ok(None) };
            match call(self.client.request::<Review>(request)).await {
                Ok(review) => Ok(of(review.status.user_info, self.client.default_namespace())),
                // Before Kubernetes 1.28, or where even this is not granted.
                Err(failure) if matches!(failure.why, Why::Forbidden | Why::Missing) => {
                    tracing::info!("Leases get no owner, and stay when the agents go: {}", failure.words);
                    Ok(None)
                }
                Err(failure) => Err(failure),
            }
        };
        let owner = self.known.get_or_try_init(ask).await?;
        Ok(owner.clone().map(|owner| vec![owner]))
    }
}

/// The ServiceAccount, if this user is one of that namespace: an owner in another is none.
fn of(user: UserInfo, namespace: &str) -> Option<OwnerReference> {
    let (home, name) = user.username.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    (home == namespace && !name.is_empty() && !user.uid.is_empty()).then(|| OwnerReference {
        api_version: "v1".to_owned(),
        kind: "ServiceAccount".to_owned(),
        name: name.to_owned(),
        uid: user.uid,
        ..OwnerReference::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_account_of_the_same_namespace_owns_a_lease() {
        let of = |text: &str| {
            let review: Review = serde_json::from_str(text).unwrap();
            of(review.status.user_info, "storewatch")
                .map(|owner| format!("{} {} {}", owner.kind, owner.name, owner.uid))
        };
        let account = r#"{"status":{"userInfo":{"username":"system:serviceaccount:storewatch:agents","uid":"u-1",
            "extra":{"authentication.kubernetes.io/node-name":["node-1"]}}}}"#;
        assert_eq!(of(account).as_deref(), Some("ServiceAccount agents u-1"));
        for nobody in [
            "{}",
            r#"{"status":{"userInfo":{"username":"admin","uid":"u"}}}"#,
            r#"{"status":{"userInfo":{"username":"system:serviceaccount:other:agents","uid":"u"}}}"#,
            r#"{"status":{"userInfo":{"username":"system:serviceaccount:storewatch:","uid":"u"}}}"#,
            r#"{"status":{"userInfo":{"username":"system:serviceaccount:storewatch:agents"}}}"#,
        ] {
            assert_eq!(of(nobody), None, "{nobody}");
        }
    }
}
