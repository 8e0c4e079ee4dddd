//! Questions to the engine: what is not published because it is large and seldom wanted.
//!
//! Nothing here can hold up the engine. A question waits in a short queue or is refused; the engine answers one in a turn
//! of its loop, and then rests from answering ten times as long as that took; what nobody waits for is not answered.

use crate::clock;
use std::{collections::VecDeque, time::Duration};
use storewatch_core::{
    judge::Judge,
    table::{Table, TableQuery},
    time::MonoTime,
};
use tokio::sync::{
    mpsc::{self, error::TrySendError},
    oneshot,
};

/// Questions that may wait on each side: people ask, and a page or two that refreshes itself.
const QUEUE: usize = 8;

/// How long an asker waits. The engine's turns take milliseconds; one that takes this long is in trouble.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long a question waits for a sample of the sockets: 50 000 of them take some 20 ms by the kernel's iterator, and the
/// walk through `/proc` of a large node longer than anybody would wait.
const SAMPLE_WAIT: Duration = Duration::from_millis(500);

/// After an answer that took t no other one is given for this many t.
const REST_FACTOR: u32 = 10;

/// Makes both ends.
pub fn channel() -> (Asker, Questions) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    (Asker { sender }, Questions { receiver, waiting: VecDeque::new(), rest_until: MonoTime::default() })
}

/// The end of those who ask. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Asker {
    sender: mpsc::Sender<Question>,
}

#[derive(Debug)]
struct Question {
    query: TableQuery,
    answer: oneshot::Sender<Table>,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// Others ask already.
    #[error("too many questions wait already; ask again in a moment")]
    Busy,
    /// It has more urgent things to do.
    #[error("the engine is too busy to answer in time; ask again in a moment")]
    Late,
    /// It will never answer.
    #[error("the engine has ended: the agent is shutting down")]
    Ended,
}

impl Asker {
    /// Asks for the connection table, with a sample of the sockets that is at most a second old where one can be had.
    ///
    /// # Errors
    /// Why there is no answer, within two seconds at the latest.
    pub async fn table(&self, query: TableQuery) -> Result<Table, Unanswered> {
        let (answer, answered) = oneshot::channel();
        self.sender.try_send(Question { query, answer }).map_err(|error| match error {
            TrySendError::Full(_) => Unanswered::Busy,
            TrySendError::Closed(_) => Unanswered::Ended,
        })?;
        match tokio::time::timeout(PATIENCE, answered).await {
            Ok(Ok(table)) => Ok(table),
            Ok(Err(_)) => Err(Unanswered::Ended),
            Err(_) => Err(Unanswered::Late),
        }
    }
}

/// The engine's end.
#[derive(Debug)]
pub struct Questions {
    receiver: mpsc::Receiver<Question>,
    /// Each with the time at which it came.
    waiting: VecDeque<(Question, MonoTime)>,
    rest_until: MonoTime,
}

impl Questions {
    /// Waits until there is one more, for ever if none can come. Cancel-safe.
    pub async fn arrive(&mut self) {
        if self.waiting.len() < QUEUE
            && let Some(question) = self.receiver.recv().await
        {
            self.waiting.push_back((question, clock::now()));
            return;
        }
        std::future::pending().await
    }

    /// Answers one, if there is one whose time has come. To be called before [`Judge::advance`], which passes on the wish
    /// for a sample. Gives the instant at which to call again at the latest.
    pub fn serve(&mut self, judge: &mut Judge, now: MonoTime) -> Option<MonoTime> {
        while self.waiting.len() < QUEUE
            && let Ok(question) = self.receiver.try_recv()
        {
            self.waiting.push_back((question, now));
        }
        self.waiting.retain(|(question, _)| !question.answer.is_closed());
        let asked = self.waiting.front()?.1;
        if now < self.rest_until {
            return Some(self.rest_until);
        }
        let waited = asked + SAMPLE_WAIT;
        if !judge.freshen(asked) && now < waited {
            return Some(waited);
        }
        let (question, _) = self.waiting.pop_front()?;
        let began = clock::now();
        let table = judge.table(&question.query);
        let ended = clock::now();
        self.rest_until = ended + ended.since(began) * REST_FACTOR;
        // Whoever asked may have gone just now.
        drop(question.answer.send(table));
        (!self.waiting.is_empty()).then_some(self.rest_until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use storewatch_core::{
        connection::InventorySample,
        observation::Observation,
        policy::{OnUnknown, Settings, StaleTransportAction, VerdictPolicy},
        request::Request,
    };

    fn judge() -> Judge {
        let policy = VerdictPolicy {
            failure_threshold: 2,
            success_threshold: 1,
            window: Duration::from_secs(150),
            stale_suspect_after: Duration::from_secs(60),
            stale_confirm_after: Duration::from_secs(240),
            stale_transport: StaleTransportAction::NotReady,
            min_other_ready: 1,
            on_unknown: OnUnknown::Ready,
            ping_interval: Duration::from_secs(2),
            inventory_interval: Duration::from_secs(15),
        };
        let settings = Settings { node: "node-a".into(), clusters: Vec::new(), policy, kernel_off: false };
        Judge::new(settings, MonoTime::default())
    }

    fn sample(judge: &mut Judge, at: MonoTime) {
        let sample = InventorySample { at, ended: at, complete: true, sockets: Vec::new() };
        judge.observe(Observation::Inventory(sample));
    }

    #[tokio::test]
    async fn a_question_waits_for_a_sample_and_not_for_ever() {
        let ((asker, mut questions), mut judge) = (channel(), judge());
        let asking = tokio::time::timeout(PATIENCE, asker.table(TableQuery::default()));
        let engine = async {
            questions.arrive().await;
            let now = clock::now();
            let again = questions.serve(&mut judge, now);
            assert!(again.is_some_and(|at| at > now), "no sample was ever taken");
            assert!(judge.advance(now).requests.contains(&Request::Inventory));
            sample(&mut judge, now);
            assert_eq!(questions.serve(&mut judge, now), None);
        };
        let (table, ()) = tokio::join!(asking, engine);
        assert!(table.unwrap().unwrap().sampled_at.is_some());

        // None comes: what is known must do.
        let (asker, mut questions) = channel();
        let mut judge = self::judge();
        let asking = asker.table(TableQuery::default());
        let engine = async {
            questions.arrive().await;
            let now = clock::now() + SAMPLE_WAIT;
            assert_eq!(questions.serve(&mut judge, now), None);
        };
        let (table, ()) = tokio::join!(asking, engine);
        assert_eq!(table.unwrap().sampled_at, None);
    }

    #[tokio::test]
    async fn what_does_not_fit_is_refused_and_an_engine_that_is_gone_is_said() {
        let (asker, mut questions) = channel();
        let mut asking: Vec<_> = (0..QUEUE).map(|_| Box::pin(asker.table(TableQuery::default()))).collect();
        for question in &mut asking {
            assert!(futures_util::poll!(question).is_pending());
        }
        assert_eq!(asker.table(TableQuery::default()).await, Err(Unanswered::Busy));
        // The engine takes them in one turn and answers one of them; those who gave up are not answered.
        let mut judge = judge();
        let now = clock::now();
        sample(&mut judge, now);
        let patient = asking.pop().unwrap();
        drop(asking);
        questions.serve(&mut judge, now);
        assert!(questions.waiting.is_empty());
        assert!(patient.await.is_ok());
        drop(questions);
        assert_eq!(asker.table(TableQuery::default()).await, Err(Unanswered::Ended));
    }

    #[tokio::test(start_paused = true)]
    async fn an_engine_that_is_stuck_is_waited_for_only_so_long() {
        let (asker, questions) = channel();
        assert_eq!(asker.table(TableQuery::default()).await, Err(Unanswered::Late));
        drop(questions);
    }

    #[tokio::test]
    async fn after_an_answer_comes_a_rest() {
        let ((asker, mut questions), mut judge) = (channel(), judge());
        let now = clock::now();
        sample(&mut judge, now);
        let mut asking: Vec<_> = (0..2).map(|_| Box::pin(asker.table(TableQuery::default()))).collect();
        for question in &mut asking {
            assert!(futures_util::poll!(question).is_pending());
        }
        let rest = questions.serve(&mut judge, now).unwrap();
        assert!(rest > now && questions.waiting.len() == 1);
        assert_eq!(questions.serve(&mut judge, now), Some(rest), "not before");
        assert_eq!(questions.serve(&mut judge, rest), None);
        for question in asking {
            assert!(question.await.is_ok());
        }
    }
}
