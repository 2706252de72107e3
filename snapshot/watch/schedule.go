package watch

import (
	"container/heap"
	"time"
)

// schedule says which watcher is to be woken next. The zero value is empty.
type schedule struct{ heap cursorHeap }

// set puts a watcher in, or moves it.
func (s *schedule) set(w *Watcher, at time.Time) {
	w.wakeAt = at
	if w.inHeap {
		heap.Fix(&s.heap, w.heapIndex)
		return
	}
	heap.Push(&s.heap, w)
}

// remove takes a watcher out, if it is there.
func (s *schedule) remove(w *Watcher) {
	if w.inHeap {
		heap.Remove(&s.heap, w.heapIndex)
	}
}

// first is the watcher that is to be woken next; nil if there is none.
func (s *schedule) first() *Watcher {
	if len(s.heap) == 0 {
		return nil
	}
	return s.heap[0]
}

// cursorHeap implements heap.Interface.
type cursorHeap []*Watcher

func (h cursorHeap) Len() int           { return len(h) }
func (h cursorHeap) Less(i, j int) bool { return h[i].wakeAt.Before(h[j].wakeAt) }

func (h cursorHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heapIndex, h[j].heapIndex = i, j
}

func (h *cursorHeap) Push(x any) {
	c := x.(*Watcher) //nolint:forcetypeassert // heap.Push is called above only
	c.heapIndex, c.inHeap = len(*h), true
	*h = append(*h, c)
}

func (h *cursorHeap) Pop() any {
	last := len(*h) - 1
	c := (*h)[last]
	c.inHeap = false
	(*h)[last] = nil
	*h = (*h)[:last]
	return c
}
