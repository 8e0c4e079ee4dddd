//! How much this thread holds on the heap: an allocator that counts. A judge lives in one thread, so others do not disturb.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

thread_local! {
    static HELD: Cell<i64> = const { Cell::new(0) };
}

fn add(bytes: usize, sign: i64) {
    // A thread that ends may free when its counter is gone.
    let _ = HELD.try_with(|held| held.set(held.get() + sign * i64::try_from(bytes).unwrap_or(i64::MAX)));
}

// SAFETY: all is the system allocator's doing; only numbers are kept beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size(), 1);
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        add(layout.size(), -1);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Bytes that this thread has asked for and not given back.
pub(crate) fn held() -> i64 {
    HELD.with(Cell::get)
}
