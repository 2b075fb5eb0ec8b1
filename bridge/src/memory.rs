//! Memory that runs out. Rust's collections then end the program with a message of their own; here
//! the program gets the word first.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Does not return.
pub type Handler = extern "C" fn();

static HANDLER: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

struct Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

#[cold]
fn exhausted() -> *mut u8 {
    let handler = HANDLER.load(Ordering::Acquire);
    if !handler.is_null() {
        // SAFETY: nothing but a Handler is ever stored there.
        unsafe { std::mem::transmute::<*mut (), Handler>(handler)() };
    }
    std::ptr::null_mut()
}

fn checked(memory: *mut u8) -> *mut u8 {
    if memory.is_null() {
        exhausted()
    } else {
        memory
    }
}

// SAFETY: the system's allocator; what it gives is passed on as it is.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        checked(System.alloc(layout))
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        checked(System.alloc_zeroed(layout))
    }
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        checked(System.realloc(memory, layout, size))
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        System.dealloc(memory, layout)
    }
}

#[no_mangle]
pub extern "C" fn quince_bridge_on_out_of_memory(handler: Handler) {
    HANDLER.store(handler as *mut (), Ordering::Release);
}
