package inflight

import (
	"bytes"
	"container/list"

	"github.com/google/btree"
)

// holdings has the things that callers hold, each with its caller, and knows who holds the most. It
// is not safe for concurrent use.
type holdings[T any] struct {
	callers map[ShareKey]*holding[T]
	// byCount has the callers that hold something; the one who holds the most is the last.
	byCount *btree.BTreeG[*holding[T]]
	total   int
}

// holding is what one caller holds.
type holding[T any] struct {
	caller ShareKey
	items  list.List // of *item[T], the newest last
}

// item is one thing that a caller holds.
type item[T any] struct {
	value T
	of    *holding[T]
	at    *list.Element // nil when it is not held any more
}

func newHoldings[T any]() *holdings[T] {
	less := func(a, b *holding[T]) bool {
		if a.items.Len() != b.items.Len() {
			return a.items.Len() < b.items.Len()
		}
		return bytes.Compare(a.caller[:], b.caller[:]) < 0
	}
	return &holdings[T]{callers: map[ShareKey]*holding[T]{}, byCount: btree.NewG(inNeedDegree, less)}
}

// count returns how many things a caller holds.
func (h *holdings[T]) count(caller ShareKey) int {
	if of := h.callers[caller]; of != nil {
		return of.items.Len()
	}
	return 0
}

// add notes that a caller holds one thing more.
func (h *holdings[T]) add(caller ShareKey, value T) *item[T] {
	of := h.callers[caller]
	if of == nil {
		of = &holding[T]{caller: caller}
		h.callers[caller] = of
	}
	added := &item[T]{value: value, of: of}
	h.change(of, func() { added.at = of.items.PushBack(added) })
	h.total++
	return added
}

// remove notes that a thing is not held any more. Further calls do nothing.
func (h *holdings[T]) remove(i *item[T]) {
	if i.at == nil {
		return
	}
	h.change(i.of, func() { i.of.items.Remove(i.at) })
	i.at = nil
	h.total--
}

// change calls do, which changes how many things a caller holds. Meanwhile the caller is not in the
// tree, whose order depends on it.
func (h *holdings[T]) change(of *holding[T], do func()) {
	h.byCount.Delete(of)
	do()
	if of.items.Len() > 0 {
		h.byCount.ReplaceOrInsert(of)
	} else {
		delete(h.callers, of.caller)
	}
}

// spareFor returns what can be removed for a caller who holds so many: the newest thing of the caller
// who holds the most. There is none if that caller would then hold less than the other one: two
// callers do not take the same thing from each other in turn.
func (h *holdings[T]) spareFor(held int) *item[T] {
	most, ok := h.byCount.Max()
	if !ok || most.items.Len() < held+2 {
		return nil
	}
	newest, _ := most.items.Back().Value.(*item[T])
	return newest
}
