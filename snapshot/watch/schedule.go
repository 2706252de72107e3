package watch

import (
	"container/heap"
	"time"
)

// schedule has watchers in the order of the times at which they must be woken. The zero value is empty.
type schedule struct{ heap watcherHeap }

// set adds a watcher, or changes its time.
func (s *schedule) set(w *Watcher, at time.Time) {
	w.wakeAt = at
	if w.inHeap {
		heap.Fix(&s.heap, w.heapIndex)
		return
	}
	heap.Push(&s.heap, w)
}

// remove removes a watcher, if it is there.
func (s *schedule) remove(w *Watcher) {
	if w.inHeap {
		heap.Remove(&s.heap, w.heapIndex)
	}
}

// first returns the watcher that must be woken next; nil if there is none.
func (s *schedule) first() *Watcher {
	if len(s.heap) == 0 {
		return nil
	}
	return s.heap[0]
}

// watcherHeap implements heap.Interface.
type watcherHeap []*Watcher

func (h watcherHeap) Len() int           { return len(h) }
func (h watcherHeap) Less(i, j int) bool { return h[i].wakeAt.Before(h[j].wakeAt) }

func (h watcherHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heapIndex, h[j].heapIndex = i, j
}

func (h *watcherHeap) Push(x any) {
	w := x.(*Watcher) //nolint:forcetypeassert // heap.Push is called above only
	w.heapIndex = len(*h)
	w.inHeap = true
	*h = append(*h, w)
}

func (h *watcherHeap) Pop() any {
	last := len(*h) - 1
	w := (*h)[last]
	w.inHeap = false
	(*h)[last] = nil
	*h = (*h)[:last]
	return w
}
