//! Fuzz target for the node protocol: read frames of either direction and write them again. Shared
//! by the libFuzzer target and the smoke test of `core/protocol`.

use dwell_protocol::{Event, Frame, Request, read_frame, write_data, write_message};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub(crate) fn frame(data: &[u8]) {
    frames::<Request>(data);
    frames::<Event>(data);
}

fn frames<M: Serialize + DeserializeOwned>(data: &[u8]) {
    let mut from = data;
    while let Ok(Some(frame)) = read_frame::<M>(&mut from) {
        let mut again = Vec::new();
        match frame {
            Frame::Message(message) => {
                write_message(&mut again, &message).expect("writing to memory succeeds");
                let read = read_frame::<M>(&mut &again[..]);
                let Ok(Some(Frame::Message(read))) = read else { panic!("message not read back") };
                let text = |message| serde_json::to_string(message).expect("it was JSON before");
                assert_eq!(text(&read), text(&message));
            }
            Frame::Data(job, bytes) => {
                write_data(&mut again, job, &bytes).expect("writing to memory succeeds");
                let read = read_frame::<M>(&mut &again[..]);
                assert!(
                    matches!(read, Ok(Some(Frame::Data(j, b))) if j == job && b == bytes),
                    "the data is read back unchanged"
                );
            }
        }
    }
}
