package oracle

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/watch"
)

func is(kind watch.EventType, key string, revision uint64) Event {
	return Event{Type: kind, Key: key, Revision: revision, Object: fmt.Appendf(nil, "%s at %d", key, revision)}
}

func ends(revision uint64) Event {
	return Event{Type: watch.Bookmark, Revision: revision, EndsInitial: true}
}
func mark(revision uint64) Event { return Event{Type: watch.Bookmark, Revision: revision} }

// truth has a state at 10, and what came then. A selection leaves nothing but a DELETED with the
// object that was before it.
func truth() Watch {
	return Watch{
		Bookmarks: true, Least: 10, Most: 14, UpTo: 20, From: 10,
		State: map[string][]byte{"a": is("", "a", 3).Object, "b": is("", "b", 7).Object},
		Events: []Event{
			is(watch.Modified, "a", 11), is(watch.Added, "a/x", 12), is(watch.Deleted, "b", 14), is(watch.Added, "b", 16), is(watch.Modified, "a/x", 20),
		},
	}
}

// TestJudge: what is true passes, and nothing that a stream can tell otherwise.
func TestJudge(t *testing.T) {
	events := truth().Events
	state := func(keep ...Event) []Event { return keep }
	at12 := state(is(watch.Added, "a", 11), is(watch.Added, "a/x", 12), is(watch.Added, "b", 7))
	after12 := events[2:]
	streaming := truth()
	streaming.Begins, streaming.Ending = FromState, true
	old := streaming // the old kind of watch, without an end of the initial events
	old.Ending, old.Bookmarks = false, false
	resuming := truth()
	resuming.Begins, resuming.Revision = FromRevision, 11
	now := truth()
	now.Begins, now.Bookmarks = FromNow, false
	concat := slices.Concat[[]Event]
	one := func(e Event) []Event { return []Event{e} }
	for name, tt := range map[string]struct {
		demand Watch
		said   []Event
		right  bool
	}{
		"streaming":                        {streaming, concat(at12, one(ends(12)), after12), true},
		"streaming, of the next moment":    {streaming, concat(at12, one(ends(13)), after12), true},
		"streaming, with bookmarks":        {streaming, concat(at12, one(ends(12)), one(mark(12)), after12[:1], one(mark(15)), after12[1:], one(mark(20))), true},
		"streaming, and more":              {streaming, concat(at12, one(ends(12)), after12, one(is(watch.Modified, "b", 21))), false},
		"no end":                           {streaming, concat(at12, after12), false},
		"two ends":                         {streaming, concat(at12, one(ends(12)), one(ends(12)), after12), false},
		"the end too early":                {streaming, concat(at12[:2], one(ends(12)), at12[2:], after12), false},
		"the end of before":                {streaming, concat(at12, one(ends(11)), after12), false},
		"the end of later":                 {streaming, concat(at12, one(ends(14)), after12), false},
		"the end of what is to come":       {streaming, concat(at12, one(ends(15)), after12), false},
		"a bookmark before the end":        {streaming, concat(one(mark(10)), at12, one(ends(12)), after12), false},
		"an initial one missing":           {streaming, concat(at12[1:], one(ends(12)), after12), false},
		"an initial one too many":          {streaming, concat(at12, one(is(watch.Added, "c", 1)), one(ends(12)), after12), false},
		"an initial one twice":             {streaming, concat(at12[:1], at12, one(ends(12)), after12), false},
		"not in the order of keys":         {streaming, concat(at12[1:], at12[:1], one(ends(12)), after12), false},
		"an initial one of before":         {streaming, concat(one(is(watch.Added, "a", 3)), at12[1:], one(ends(12)), after12), false},
		"an initial change":                {streaming, concat(one(is(watch.Modified, "a", 11)), at12[1:], one(ends(12)), after12), false},
		"dropped":                          {streaming, concat(at12, one(ends(12)), after12[1:]), false},
		"dropped at the end":               {streaming, concat(at12, one(ends(12)), after12[:2]), false},
		"doubled":                          {streaming, concat(at12, one(ends(12)), after12[:1], after12), false},
		"reordered":                        {streaming, concat(at12, one(ends(12)), one(after12[1]), one(after12[0]), after12[2:]), false},
		"a bookmark ahead":                 {streaming, concat(at12, one(ends(12)), one(mark(14)), after12), false},
		"a bookmark behind":                {streaming, concat(at12, one(ends(12)), after12, one(mark(19))), false},
		"a bookmark behind the end":        {streaming, concat(at12, one(ends(12)), one(mark(11)), after12), false},
		"of another type":                  {streaming, concat(at12, one(ends(12)), one(is(watch.Modified, "b", 14)), after12[1:]), false},
		"without an end":                   {old, concat(at12, after12), true},
		"without an end, at the first":     {old, concat(state(is(watch.Added, "a", 3), is(watch.Added, "b", 7)), events), true},
		"without an end, mixed":            {old, concat(state(is(watch.Added, "a", 3), is(watch.Added, "a/x", 12), is(watch.Added, "b", 7)), after12), false},
		"without an end, too new":          {old, concat(state(is(watch.Added, "a", 11), is(watch.Added, "a/x", 20), is(watch.Added, "b", 16))), false},
		"without an end, with one":         {old, concat(at12, one(ends(12)), after12), false},
		"without an end, with a bookmark":  {old, concat(at12, after12, one(mark(20))), false},
		"resuming":                         {resuming, events[1:], true},
		"resuming, with bookmarks":         {resuming, concat(events[1:2], one(mark(12)), events[2:], one(mark(25))), true},
		"resuming, too early":              {resuming, events, false},
		"resuming, too late":               {resuming, events[2:], false},
		"resuming, nothing":                {resuming, nil, false},
		"resuming, with initial ones":      {resuming, concat(at12, one(ends(12)), after12), false},
		"resuming, a bookmark of before":   {resuming, concat(one(mark(10)), events[1:]), false},
		"resuming, other bytes":            {resuming, concat(one(Event{Type: watch.Added, Key: "a/x", Revision: 12, Object: []byte("?")}), events[2:]), false},
		"resuming, promised and not told":  {resuming, concat(events[1:], one(mark(30))), true},
		"from now":                         {now, events[2:], true},
		"from now, too late":               {now, events[4:], false},
		"from now, a hole":                 {now, concat(events[2:3], events[4:]), false},
		"from now, nothing":                {now, nil, false},
		"from now, with a bookmark":        {now, concat(events[2:], one(mark(20))), false},
		"from now, told before it was due": {now, concat(events, one(is(watch.Added, "z", 21))), false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := tt.demand.Judge(tt.said, false); (err == nil) != tt.right {
				t.Errorf("%v, and it is right: %t", err, tt.right)
			}
		})
	}
	// One that has ended may lack what comes last, but nothing that a bookmark has promised.
	ended := streaming
	for n := range len(at12) + 1 + len(after12) {
		if err := ended.Judge(concat(at12, one(ends(12)), after12)[:n], true); err != nil {
			t.Errorf("ended after %d: %v", n, err)
		}
	}
	if ended.Judge(concat(at12, one(ends(12)), after12[:1], one(mark(16))), true) == nil {
		t.Error("a promise was not kept")
	}
}
