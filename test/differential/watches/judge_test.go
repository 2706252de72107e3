package watches

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/events"
)

func is(kind, key string, revision uint64) event {
	return event{kind: kind, key: key, revision: revision, object: fmt.Appendf(nil, "%s at %d", key, revision)}
}

func ends(revision uint64) event { return event{kind: bookmark, revision: revision, end: true} }
func mark(revision uint64) event { return event{kind: bookmark, revision: revision} }

// truth has a state at 10, and what came then. A selection leaves nothing but a DELETED with the
// object that was before it.
func truth() demand {
	return demand{
		bookmarks: true, least: 10, most: 14, upTo: 20, from: 10,
		state: map[string][]byte{"a": is("", "a", 3).object, "b": is("", "b", 7).object},
		events: []event{
			is(modified, "a", 11), is(added, "a/x", 12), is(deleted, "b", 14), is(added, "b", 16), is(modified, "a/x", 20),
		},
	}
}

// TestJudge: what is true passes, and nothing that a stream can tell otherwise.
func TestJudge(t *testing.T) {
	events := truth().events
	state := func(keep ...event) []event { return keep }
	at12 := state(is(added, "a", 11), is(added, "a/x", 12), is(added, "b", 7))
	after12 := events[2:]
	streaming := truth()
	streaming.begins, streaming.ending = fromState, true
	old := streaming // the old kind of watch, without an end of the initial events
	old.ending, old.bookmarks = false, false
	resuming := truth()
	resuming.begins, resuming.revision = fromRevision, 11
	now := truth()
	now.begins, now.bookmarks = fromNow, false
	with := slices.Concat[[]event]
	one := func(e event) []event { return []event{e} }
	for name, tt := range map[string]struct {
		demand demand
		said   []event
		right  bool
	}{
		"streaming":                        {streaming, with(at12, one(ends(12)), after12), true},
		"streaming, of the next moment":    {streaming, with(at12, one(ends(13)), after12), true},
		"streaming, with bookmarks":        {streaming, with(at12, one(ends(12)), one(mark(12)), after12[:1], one(mark(15)), after12[1:], one(mark(20))), true},
		"streaming, and more":              {streaming, with(at12, one(ends(12)), after12, one(is(modified, "b", 21))), false},
		"no end":                           {streaming, with(at12, after12), false},
		"two ends":                         {streaming, with(at12, one(ends(12)), one(ends(12)), after12), false},
		"the end too early":                {streaming, with(at12[:2], one(ends(12)), at12[2:], after12), false},
		"the end of before":                {streaming, with(at12, one(ends(11)), after12), false},
		"the end of later":                 {streaming, with(at12, one(ends(14)), after12), false},
		"the end of what is to come":       {streaming, with(at12, one(ends(15)), after12), false},
		"a bookmark before the end":        {streaming, with(one(mark(10)), at12, one(ends(12)), after12), false},
		"an initial one missing":           {streaming, with(at12[1:], one(ends(12)), after12), false},
		"an initial one too many":          {streaming, with(at12, one(is(added, "c", 1)), one(ends(12)), after12), false},
		"an initial one twice":             {streaming, with(at12[:1], at12, one(ends(12)), after12), false},
		"not in the order of keys":         {streaming, with(at12[1:], at12[:1], one(ends(12)), after12), false},
		"an initial one of before":         {streaming, with(one(is(added, "a", 3)), at12[1:], one(ends(12)), after12), false},
		"an initial change":                {streaming, with(one(is(modified, "a", 11)), at12[1:], one(ends(12)), after12), false},
		"dropped":                          {streaming, with(at12, one(ends(12)), after12[1:]), false},
		"dropped at the end":               {streaming, with(at12, one(ends(12)), after12[:2]), false},
		"doubled":                          {streaming, with(at12, one(ends(12)), after12[:1], after12), false},
		"reordered":                        {streaming, with(at12, one(ends(12)), one(after12[1]), one(after12[0]), after12[2:]), false},
		"a bookmark ahead":                 {streaming, with(at12, one(ends(12)), one(mark(14)), after12), false},
		"a bookmark behind":                {streaming, with(at12, one(ends(12)), after12, one(mark(19))), false},
		"a bookmark behind the end":        {streaming, with(at12, one(ends(12)), one(mark(11)), after12), false},
		"of another type":                  {streaming, with(at12, one(ends(12)), one(is(modified, "b", 14)), after12[1:]), false},
		"without an end":                   {old, with(at12, after12), true},
		"without an end, at the first":     {old, with(state(is(added, "a", 3), is(added, "b", 7)), events), true},
		"without an end, mixed":            {old, with(state(is(added, "a", 3), is(added, "a/x", 12), is(added, "b", 7)), after12), false},
		"without an end, too new":          {old, with(state(is(added, "a", 11), is(added, "a/x", 20), is(added, "b", 16))), false},
		"without an end, with one":         {old, with(at12, one(ends(12)), after12), false},
		"without an end, with a bookmark":  {old, with(at12, after12, one(mark(20))), false},
		"resuming":                         {resuming, events[1:], true},
		"resuming, with bookmarks":         {resuming, with(events[1:2], one(mark(12)), events[2:], one(mark(25))), true},
		"resuming, too early":              {resuming, events, false},
		"resuming, too late":               {resuming, events[2:], false},
		"resuming, nothing":                {resuming, nil, false},
		"resuming, with initial ones":      {resuming, with(at12, one(ends(12)), after12), false},
		"resuming, a bookmark of before":   {resuming, with(one(mark(10)), events[1:]), false},
		"resuming, other bytes":            {resuming, with(one(event{kind: added, key: "a/x", revision: 12, object: []byte("?")}), events[2:]), false},
		"resuming, promised and not told":  {resuming, with(events[1:], one(mark(30))), true},
		"from now":                         {now, events[2:], true},
		"from now, too late":               {now, events[4:], false},
		"from now, a hole":                 {now, with(events[2:3], events[4:]), false},
		"from now, nothing":                {now, nil, false},
		"from now, with a bookmark":        {now, with(events[2:], one(mark(20))), false},
		"from now, told before it was due": {now, with(events, one(is(added, "z", 21))), false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := tt.demand.judge(tt.said); (err == nil) != tt.right {
				t.Errorf("%v, and it is right: %t", err, tt.right)
			}
		})
	}
	// One that has ended may lack what comes last, but nothing that a bookmark has promised.
	ended := streaming
	for n := range len(at12) + 1 + len(after12) {
		if err := ended.ofStream(with(at12, one(ends(12)), after12)[:n], true); err != nil {
			t.Errorf("ended after %d: %v", n, err)
		}
	}
	if ended.ofStream(with(at12, one(ends(12)), after12[:1], one(mark(16))), true) == nil {
		t.Error("a promise was not kept")
	}
}

// TestDecode: frames are read, and nothing that only looks like one.
func TestDecode(t *testing.T) {
	object := `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"n","namespace":"s","resourceVersion":"5"}}`
	line := `{"type":"ADDED","object":` + object + "}\n"
	read := func(form string, b []byte) (event, error) { return next(events.NewReader(bytes.NewReader(b), form)) }
	e, err := read(ask.JSON, []byte(line))
	if err != nil || e.key != "s/n" || e.revision != 5 || string(e.object) != object || e.end {
		t.Errorf("%v, %v", e, err)
	}
	for _, other := range []string{
		`{"object":` + object + `,"type":"ADDED"}` + "\n", `{"type":"ADDED", "object":` + object + "}\n", `{"type":"ADDED","object":` + object + "} \n",
		`{"type":"ADDED","object":` + object + `,"more":1}` + "\n", `{"type":"ADDED","object":{"metadata":{"name":"n"}}}` + "\n", "[]\n", line[:20],
	} {
		if e, err := read(ask.JSON, []byte(other)); err == nil {
			t.Errorf("%q is read as %v", other, e)
		}
	}
	metadata := slices.Concat(field(1, []byte("n")), field(3, []byte("s")), field(6, []byte("5")))
	packed := slices.Concat(magic, field(1, nil), field(2, field(1, metadata)), field(3, nil), field(4, nil))
	framed := frameProtobuf(event{kind: modified, object: packed})
	e, err = read(ask.Protobuf, framed)
	if err != nil || e.kind != modified || e.key != "s/n" || e.revision != 5 || !bytes.Equal(e.object, packed) {
		t.Errorf("%v, %v", e, err)
	}
	longer := append(slices.Clone(framed[4:]), field(3, []byte("x"))...)
	for _, other := range [][]byte{
		framed[:len(framed)-1], framed[:3], append(binary.BigEndian.AppendUint32(nil, uint32(len(longer))), longer...), // #nosec G115 -- short
	} {
		if e, err := read(ask.Protobuf, other); err == nil {
			t.Errorf("%q is read as %v", other, e)
		}
	}
}

// TestTemplates: a bookmark is compared but for its revision.
func TestTemplates(t *testing.T) {
	var learned templates
	f := form{representation: "json"}
	said := func(revision uint64, body string) []event {
		return []event{{kind: bookmark, revision: revision, object: fmt.Appendf(nil, body, revision)}}
	}
	if _, _, known := learned.wrong(f, said(12, "at %d")); known {
		t.Error("nothing was learned")
	}
	learned.learn(f, said(12, "at %d"))
	if _, want, known := learned.wrong(f, said(34, "at %d")); !known || want != "" {
		t.Errorf("known: %t, wrong: %q", known, want)
	}
	if _, want, _ := learned.wrong(f, said(34, "At %d")); want == "" {
		t.Error("other bytes pass")
	}
}
