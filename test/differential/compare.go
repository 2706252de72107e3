package differential

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/fields"

	"github.com/listproxy/listproxy/test/differential/body"
	"github.com/listproxy/listproxy/test/differential/cluster"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/oracle"
)

// Options of a comparison.
type Options struct {
	// Bound is how old a write may be that an Any from memory still misses, when it is asked for.
	Bound time.Duration
	// Resources are the names of those that take part; all if empty.
	Resources []string
	// Everybody asks as often as the admin.
	Everybody bool
	// Consistent: listproxy is to answer lists of the newest state from memory.
	Consistent bool
	// Only chooses classes; all if nil. With it, nothing is asked but these.
	Only func(Class) bool
}

// Comparator asks both sides and compares. Safe for concurrent use.
type Comparator struct {
	cluster *cluster.Cluster
	direct  *Side
	proxy   *Side
	options Options
	report  *Report
}

// NewComparator returns a comparator of the cluster's API server with listproxy at a URL.
func NewComparator(c *cluster.Cluster, proxy *Side, report *Report, options Options) *Comparator {
	return &Comparator{cluster: c, direct: Direct(c.Plane), proxy: proxy, options: options, report: report}
}

// Run compares until ctx ends, with some workers at a time.
func (c *Comparator) Run(ctx context.Context, seed uint64, workers int) {
	var all sync.WaitGroup
	seeds := rand.New(rand.NewPCG(seed, 3))
	d := newDeck(cluster.Split(seeds), c.cluster.Resources, c.options)
	for range workers {
		g := NewGenerator(c.cluster, cluster.Split(seeds), c.options)
		g.deck = d
		all.Go(func() { c.work(ctx, g) })
	}
	all.Wait()
}

func (c *Comparator) work(ctx context.Context, g *Generator) {
	for ctx.Err() == nil {
		switch {
		case c.options.Only != nil, !g.one(3):
			c.deal(ctx, g)
		case g.one(12):
			if q, ok := g.Walk(); ok {
				c.walk(ctx, g, q, maxPages)
			}
		case g.one(20):
			if q, ok := g.Forged(); ok {
				c.compare(ctx, q)
			}
		default:
			q, ok := g.Question()
			if ok {
				c.compare(ctx, q)
			}
			if ok && c.options.Everybody { // somebody else asks for the same list right after it
				q.User = g.users[g.rng.IntN(len(g.users))]
				q.Answerable = q.memory(g.consistent)
				c.compare(ctx, q)
			}
		}
	}
}

// deal compares what the next card of the deck says.
func (c *Comparator) deal(ctx context.Context, g *Generator) {
	next := g.deck.deal()
	done := false
	if q, ok := g.Dealt(next.Class, next.Resource); ok {
		if next.Page == Next {
			done = c.walk(ctx, g, q, 3) > 1
		} else {
			answers, ok := c.compare(ctx, q)
			done = ok && answers.proxy.Status == http.StatusOK
		}
	}
	// A walk may have turned to another class on the way.
	if !done || !c.report.has(next.Class) {
		g.deck.back(next)
	}
}

// pair is what both sides said to one question.
type pair struct {
	proxy, direct Answer
}

// waited reports whether one side, and not the other, had kube-apiserver wait in vain until its
// cache of the resource came as far as what was asked for: asked at two moments, it may say both
// (storage/cacher, waitUntilFreshAndBlock, which gives up after three seconds; an exact revision is
// read from that cache too).
func (a pair) waited() bool {
	return ask.NotThereYet(a.proxy.Status, a.proxy.Body) != ask.NotThereYet(a.direct.Status, a.direct.Body)
}

// giveUp is for how long both sides are asked again while one of them waits for its own cache. It
// only ends what fails.
const giveUp = 5 * time.Minute

// compare puts a question to both sides. It is not ok if there was a difference or no answer.
func (c *Comparator) compare(ctx context.Context, q Question) (answers pair, ok bool) {
	begun := time.Now()
	answers, found := c.once(ctx, q)
	for found != nil && answers.waited() && time.Since(begun) < giveUp && poll.Pause(ctx, 50*time.Millisecond) {
		c.report.Count("asked again")
		answers, found = c.once(ctx, q)
	}
	if ctx.Err() != nil {
		return answers, false
	}
	if found == nil {
		c.report.compared(q, answers.proxy)
		return answers, true
	}
	found.Question = q.String()
	found.CacheStatus = answers.proxy.Header.Get("Cache-Status")
	c.report.Differs(*found)
	return answers, false
}

// indexEnds reports whether an answer lacks a token only because the index of pods by node ends
// there: kube-apiserver takes the first page of a NotOlderThan or MostRecent with spec.nodeName=
// from the index, and what follows a page is what follows in the index. Its Exact form, which that
// page is held against, has a token while there are keys of any kind. That nothing of that node
// follows is not believed but asked.
func (c *Comparator) indexEnds(ctx context.Context, q Question, a pair) bool {
	node, ok := q.indexed()
	if !ok || a.proxy.Status != http.StatusOK || a.direct.Status != http.StatusOK {
		return false
	}
	token, ok := body.OnlyTokenMissing(a.proxy.Body, a.direct.Body)
	if !ok {
		return false
	}
	rest, err := c.direct.Ask(ctx, Question{
		// Where the selector leaves one namespace of all, the token is relative to that.
		Resource: q.Resource, Namespace: q.narrowed(), User: q.User, Semantics: Continue,
		Query: url.Values{"continue": {token}, "fieldSelector": {cluster.NodeNameField + "=" + fields.EscapeValue(node)}},
	})
	if err != nil || rest.Status != http.StatusOK {
		return false
	}
	var list struct {
		Items []struct{} `json:"items"`
	}
	return json.Unmarshal(rest.Body, &list) == nil && len(list.Items) == 0
}

// once asks both sides once and returns how they differ.
func (c *Comparator) once(ctx context.Context, q Question) (answers pair, _ *Difference) {
	asked := time.Now()
	var err error
	if answers.proxy, err = c.proxy.Ask(ctx, q); err != nil {
		return answers, &Difference{Kind: Silent, Detail: err.Error()}
	}
	if !strings.HasPrefix(answers.proxy.Header.Get("Cache-Status"), "listproxy; ") {
		return answers, &Difference{Kind: Unmarked, Detail: fmt.Sprint(answers.proxy.Header)}
	}
	same := q
	if q.effective().moving() && answers.proxy.Status == http.StatusOK {
		meta, err := body.ListMeta(answers.proxy.Body)
		if err != nil {
			return answers, &Difference{Kind: Body, Detail: err.Error()}
		}
		revision, err := body.RevisionOf(meta)
		if err != nil {
			return answers, &Difference{Kind: Body, Detail: err.Error()}
		}
		if d := c.age(q, answers.proxy, revision, asked); d != nil {
			return answers, d
		}
		// Now and then: does the API server take the question as listproxy does?
		if revision%8 == 0 {
			if d := c.shape(ctx, q, answers.proxy.Header, meta.Continue != ""); d != nil {
				return answers, d
			}
		}
		same = q.at(revision)
	}
	if answers.direct, err = c.direct.Ask(ctx, same); err != nil {
		return answers, &Difference{Kind: Silent, Detail: err.Error()}
	}
	if answers.direct.Status == http.StatusGone && answers.proxy.Status == http.StatusOK {
		c.report.Count(expired)
		return answers, nil
	}
	return answers, c.judge(ctx, q, answers)
}

// judge returns how two answers differ.
func (c *Comparator) judge(ctx context.Context, q Question, answers pair) *Difference {
	d := c.difference(q, answers.proxy, answers.direct)
	if d != nil && d.Kind == Body && c.indexEnds(ctx, q, answers) {
		c.report.Count("pages that ended with the index")
		return nil
	}
	return d
}

// shape asks the API server the very question, whose answer moves, and compares what does not.
func (c *Comparator) shape(ctx context.Context, q Question, header http.Header, continues bool) *Difference {
	direct, err := c.direct.Ask(ctx, q)
	switch {
	case err != nil:
		return &Difference{Kind: Silent, Detail: err.Error()}
	case direct.Status == http.StatusGatewayTimeout && q.Semantics == NotOlderThan:
		return nil // its cache of this resource has not come that far
	case direct.Status != http.StatusOK:
		return &Difference{Kind: Status, Detail: fmt.Sprintf("200, not %d: %.300s", direct.Status, direct.Body)}
	case direct.Header.Get("Content-Type") != header.Get("Content-Type"):
		return &Difference{Kind: Header, Detail: fmt.Sprintf("%q, not %q", header.Get("Content-Type"), direct.Header.Get("Content-Type"))}
	case q.Semantics != Any:
		return nil // how much follows a page may have changed
	}
	meta, err := body.ListMeta(direct.Body)
	if err != nil || (meta.Continue != "") != continues {
		return &Difference{Kind: Body, Detail: fmt.Sprintf("a token: %v, not %v, %v", continues, meta.Continue != "", err)}
	}
	return nil
}

// forwarded reports whether listproxy says of an answer that it is the API server's.
func forwarded(a Answer) bool { return strings.Contains(a.Header.Get("Cache-Status"), "fwd=") }

// age checks the revision of an answer that may move. An Any that was forwarded may be of any age:
// it is as old as kube-apiserver's own cache.
func (c *Comparator) age(q Question, answer Answer, revision uint64, asked time.Time) *Difference {
	switch q.effective() {
	case NotOlderThan:
		if revision < q.Revision {
			return &Difference{Kind: TooOld, Detail: fmt.Sprintf("at revision %d", revision)}
		}
	case Any:
		if forwarded(answer) {
			return nil
		}
		least := c.cluster.Ledger.Before(q.Resource.GroupResource(), asked.Add(-c.options.Bound))
		if revision < least {
			return &Difference{Kind: Frozen, Detail: fmt.Sprintf("at revision %d, without a write at %d that is older than %v", revision, least, c.options.Bound)}
		}
	case MostRecent:
		least := c.cluster.Ledger.Before(q.Resource.GroupResource(), asked)
		if revision < least {
			return &Difference{Kind: TooOld, Detail: fmt.Sprintf("at revision %d, after a write at %d", revision, least)}
		}
	}
	return nil
}

// difference holds listproxy's answer against the API server's.
func (c *Comparator) difference(q Question, got, want Answer) *Difference {
	if got.Status != want.Status {
		return &Difference{Kind: Status, Detail: fmt.Sprintf("%d, not %d:\n  %.300s\n  %.300s", got.Status, want.Status, got.Body, want.Body)}
	}
	if d := HeaderDifference(q, got.Header, want.Header); d != nil {
		return d
	}
	if q.Clocked {
		got.Body, want.Body = ages.ReplaceAll(got.Body, []byte(`"age"`)), ages.ReplaceAll(want.Body, []byte(`"age"`))
	}
	if bytes.Equal(got.Body, want.Body) {
		return nil
	}
	if body.SameButToken(got.Body, want.Body) {
		c.report.Count("tokens that differed in the slash")
		return nil
	}
	if got.Status == http.StatusGatewayTimeout && bytes.Equal(current.ReplaceAll(got.Body, nil), current.ReplaceAll(want.Body, nil)) {
		return nil
	}
	return &Difference{Kind: Body, Detail: oracle.Difference(got.Body, want.Body)}
}

// ages are what the cells of a Table have in them that follows the clock. Tables are not answered from memory.
var ages = regexp.MustCompile(`"(\d+[smhdy])+"`)

// current is how far the API server was when it refused a revision of the future.
var current = regexp.MustCompile(`current: \d+`)

// HeaderDifference compares all headers, but those that doc.go names.
func HeaderDifference(q Question, got, want http.Header) *Difference {
	strip := func(h http.Header) http.Header {
		h = h.Clone()
		for name := range h {
			if strings.HasPrefix(name, "X-Kubernetes-Pf-") {
				h.Del(name)
			}
		}
		for _, name := range []string{"Date", "Content-Length", "Cache-Status"} {
			h.Del(name)
		}
		if q.Header.Get("Audit-Id") == "" && len(h["Audit-Id"]) == 1 {
			h.Set("Audit-Id", "one")
		}
		return h
	}
	got, want = strip(got), strip(want)
	if reflect.DeepEqual(got, want) {
		return nil
	}
	var lines []string
	for name := range want {
		if !slices.Equal(got[name], want[name]) {
			lines = append(lines, fmt.Sprintf("%s: %q, not %q", name, got[name], want[name]))
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			lines = append(lines, fmt.Sprintf("%s: %q, which should not be", name, got[name]))
		}
	}
	return &Difference{Kind: Header, Detail: strings.Join(lines, "; ")}
}

// maxPages ends walks of one object a page.
const maxPages = 40

// walk compares the pages of a list, from a first question on, and returns how many it had. Each
// page is asked of both sides, and the token for the next is taken from either: tokens are
// interchangeable, and so is the one who goes on.
func (c *Comparator) walk(ctx context.Context, g *Generator, q Question, most int) (pages int) {
	for range most {
		answers, ok := c.compare(ctx, q)
		if !ok || answers.proxy.Status >= 300 {
			return pages
		}
		pages++
		from := answers.proxy
		if g.one(2) && answers.direct.Status < 300 {
			from = answers.direct
		}
		meta, err := body.ListMeta(from.Body)
		if err != nil {
			c.report.Differs(Difference{Kind: Body, Question: q.String(), Detail: err.Error()})
			return pages
		}
		if meta.Continue == "" {
			break
		}
		q = g.Next(q, meta.Continue)
	}
	c.report.Count("walks")
	return pages
}
