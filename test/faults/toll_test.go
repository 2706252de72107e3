package faults

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/faults/load"
	"github.com/listproxy/listproxy/test/harness/soak"
)

// toll is what a fault has cost of one collection.
type toll struct {
	name string // of the case
	collection
	quiet bool // nothing in it has changed
	// Whole lists that the API server was asked for: until the fault, and since it began.
	atFirst, since int
	lost           map[string]int // how often the state was lost since then, by cause
	// Revisions that were known before the fault and were asked for again: how many, and how many
	// are known still.
	asked, known int
	gone         error // why the first of the others is not
}

// wrong says what must not be.
func (c toll) wrong() (all []string) {
	what := fmt.Sprintf("%s as %s", c.Kind.Plural, c.Form.Name)
	if c.quiet && c.since > 0 {
		all = append(all, fmt.Sprintf("%s: nothing has changed, and all was loaded again %d times", what, c.since))
	}
	if c.quiet && len(c.lost) > 0 {
		all = append(all, fmt.Sprintf("%s: nothing has changed, and what was known was lost: %s", what, causes(c.lost)))
	}
	if c.asked == 0 {
		all = append(all, what+": no revision was known before the fault")
	}
	if c.known < c.asked {
		all = append(all, fmt.Sprintf("%s: of %d revisions that were known %d are lost, one of them: %v", what, c.asked, c.asked-c.known, c.gone))
	}
	return all
}

// tolls of all cases that have ended.
var tolls tollBook

type tollBook struct {
	mu  sync.Mutex
	all []toll
}

func (b *tollBook) add(c toll) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = append(b.all, c)
}

// table is them in Markdown; "" if there are none.
func (b *tollBook) table() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.all) == 0 {
		return ""
	}
	var t strings.Builder
	t.WriteString("| case | collection | changes | full lists at first | full lists since the fault began | lost | revisions still known |\n")
	t.WriteString("|---|---|---|---|---|---|---|\n")
	slices.SortStableFunc(b.all, func(a, b toll) int { return strings.Compare(a.name, b.name) }) // some ran at the same time
	for _, c := range b.all {
		changes := "all the time"
		if c.quiet {
			changes = "no"
		}
		_, _ = fmt.Fprintf(&t, "| %s | %s, %s | %s | %d | %d | %s | %d of %d |\n",
			c.name, c.Kind.Plural, c.Form.Name, changes, c.atFirst, c.since, causes(c.lost), c.known, c.asked)
	}
	return t.String()
}

// causes are losses in words.
func causes(lost map[string]int) string {
	var all []string
	for _, cause := range slices.Sorted(maps.Keys(lost)) {
		all = append(all, fmt.Sprintf("%d × %s", lost[cause], cause))
	}
	return strings.Join(all, ", ")
}

// less is what has come to counts since others.
func less(now, then map[string]int) map[string]int {
	more := map[string]int{}
	for what, n := range now {
		if n > then[what] {
			more[what] = n - then[what]
		}
	}
	return more
}

// lostUntilNow says how often each collection was lost, by cause, as listproxy tells it.
func lostUntilNow(s *scene) (map[collection]map[string]int, error) {
	all := map[collection]map[string]int{}
	for _, p := range s.proxies.All() {
		series, err := soak.Read(s.Context(), http.DefaultClient, p.AdminURL()+"/metrics", "listproxy_feed_restarts_total")
		if err != nil {
			return nil, err
		}
		for _, one := range series {
			for _, c := range append(collections(), quietCollections()...) {
				plural, _, _ := strings.Cut(one.Labels["resource"], ".")
				if plural != c.Kind.Plural || one.Labels["representation"] != c.Form.Name {
					continue
				}
				if all[c] == nil {
					all[c] = map[string]int{}
				}
				all[c][one.Labels["cause"]] += int(one.Value)
			}
		}
	}
	return all, nil
}

// formOf is the form that an Accept header asks for.
func formOf(accept string) load.Form {
	switch partial := strings.Contains(accept, "PartialObjectMetadata"); {
	case partial && strings.Contains(accept, "protobuf"):
		return load.AsBinaryMetadata
	case partial:
		return load.AsMetadata
	case strings.Contains(accept, "protobuf"):
		return load.AsProtobuf
	}
	return load.AsJSON
}

// TestToll: what must not be is said, and all is in the table.
func TestToll(t *testing.T) {
	changed := toll{name: "a", collection: collection{Kind: configMaps, Form: load.AsJSON}, since: 1, lost: map[string]int{"expired": 1}, asked: 2, known: 2}
	quiet := toll{name: "a", collection: collection{Kind: quotas, Form: load.AsProtobuf}, quiet: true, atFirst: 1, asked: 2, known: 2}
	lost := quiet
	lost.since, lost.lost, lost.known = 2, map[string]int{"went-back": 1, "other": 3}, 1
	var got []int
	var book tollBook
	for _, c := range []toll{changed, quiet, lost, {}} {
		got = append(got, len(c.wrong()))
		book.add(c)
	}
	expect.Same(t, []int{0, 0, 3, 1}, got)
	if row := "| a | resourcequotas, protobuf | no | 1 | 2 | 3 × other, 1 × went-back | 1 of 2 |"; !strings.Contains(book.table(), row) {
		t.Errorf("%s is not in\n%s", row, book.table())
	}
	expect.Same(t, map[string]int{"a": 2, "c": 1}, less(map[string]int{"a": 3, "b": 1, "c": 1}, map[string]int{"a": 1, "b": 1}))
}

// TestWhole: which of a feed's lists are of all there is.
func TestWhole(t *testing.T) {
	for query, want := range map[string]bool{
		"allowWatchBookmarks=true&sendInitialEvents=true&watch=true": true,
		"limit=2000":            true,
		"limit=2000&continue=x": false,
		"limit=20":              false,
		"limit=500&resourceVersion=7&resourceVersionMatch=Exact": false,
		"fieldSelector=metadata.name%3D~listproxy-probe":         false,
		"allowWatchBookmarks=true&resourceVersion=7&watch=true":  false,
		"limit=2&resourceVersion=7&resourceVersionMatch=Exact":   false,
	} {
		q, err := url.ParseQuery(query)
		expect.NoError(t, err)
		if got := whole(q); got != want {
			t.Errorf("%s: %t, want %t", query, got, want)
		}
	}
}
