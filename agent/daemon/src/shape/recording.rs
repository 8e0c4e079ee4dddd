//! What else stands in a recording.

use super::Stored;
use crate::recording::{Judgement, Mark, News, Start, Subject, Told};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use storewatch_core::{id, memory, observation, policy, time::MonoTime, verdict};

/// The recent judgements are shared with others who record.
impl Stored for Arc<Judgement> {
    type Shape = JudgementShape;
    fn put(&self) -> Self::Shape {
        Judgement::put(self)
    }
    fn take(shape: Self::Shape) -> Self {
        Self::new(Judgement::take(shape))
    }
}

record! {
    StartShape of Start {
        settings: policy::Settings,
        memory: memory::Memory,
        words: Vec<observation::Observation>,
        recent: Vec<Arc<Judgement>>,
    }
    JudgementShape of Judgement { at: MonoTime, observed: Vec<observation::Observation> }
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
