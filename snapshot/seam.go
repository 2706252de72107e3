package snapshot

// seam is the newest change that the live span knows. A watch that goes on from the span is
// opened one revision before it, so that the upstream must begin by telling it again: that
// proves that both have the same past. (A watch from the span's end proves nothing, if etcd was
// restored from an older state and written to until its revision had passed ours.) The change
// is the newest one of the resource, so an upstream that can go on from the span still has it.
type seam struct {
	revision uint64
	key      string
}

// seam says where a watch that goes on from the live span begins, and what must come first; the
// zero seam is nothing.
func (c *Collection) seam() (from uint64, first seam) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last.revision == 0 {
		return c.view.Load().to(), seam{}
	}
	return c.last.revision - 1, c.last
}

// meet takes an event of a resumed stream and reports whether it was the seam, or is to be
// applied.
func (s *stream) meet(ev event) (was bool, err error) {
	if s.first == (seam{}) {
		return false, nil
	}
	if got := (seam{ev.meta.revision, joinKey(ev.meta.namespace, ev.meta.name)}); ev.kind == "BOOKMARK" || got != s.first {
		return false, poison("a resumed watch does not begin with the change at revision %d: the upstream has another past", s.first.revision)
	}
	s.first = seam{}
	return true, nil
}
