//! What else stands in a recording.

use super::Stored;
use crate::recording::{Mark, News, Start, Subject, Told};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use storewatch_core::{id, memory, policy, time::MonoTime, verdict};

record! {
    StartShape of Start { settings: policy::Settings, memory: memory::Memory }
    MarkShape of Mark {
        code: verdict::FindingCode,
        mode: Option<verdict::StaleMode>,
        target: String,
        severity: verdict::Severity,
    }
    ToldShape of Told { at: MonoTime, who: Subject, what: News }
}

variants! {
    SubjectShape of Subject {
        bare {}
        one { Node(Arc<str>) }
        fields { Pod { pod: id::PodRef, uid: id::PodUid } }
    }
    NewsShape of News {
        bare {}
        one { Came(Mark), Went(Mark) }
        fields { Verdict { from: Option<verdict::Reason>, to: Option<verdict::Reason> } }
    }
}
