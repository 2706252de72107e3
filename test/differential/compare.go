package differential

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/test/differential/body"
	"github.com/listproxy/listproxy/test/differential/cluster"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/oracle"
)

const (
	// bound is how old a write may be that an anyRevision from memory still misses, when it is asked for.
	bound = 10 * time.Second
	// patience ends the wait for something that must come. It only ends what fails.
	patience = 5 * time.Minute
	// maxPages ends walks of one object a page.
	maxPages = 40
)

// comparator asks both sides and compares. Safe for concurrent use.
type comparator struct {
	cluster       *cluster.Cluster
	direct, proxy *side
	report        *report
	// begun are revisions of resources that listproxy knew from the start.
	begun map[schema.GroupResource]uint64
	// watchList reports whether the API server has streaming lists, sharded whether it has sharded lists and watches.
	watchList, sharded bool
	// pagesAny is whether the API server has pages of what is asked for at any revision, as without a watch cache.
	pagesAny bool
	sent     templates
}

// run has workers compare until ctx ends. Each makes up its own questions.
func (c *comparator) run(ctx context.Context, rng *rand.Rand, workers int, compare func(context.Context, *generator)) {
	var all sync.WaitGroup
	for range workers {
		g := &generator{rng: cluster.Split(rng), cluster: c.cluster, watchList: c.watchList, sharded: c.sharded}
		all.Go(func() {
			for ctx.Err() == nil {
				compare(ctx, g)
			}
		})
	}
	all.Wait()
}

// lists compares lists until ctx ends.
func (c *comparator) lists(ctx context.Context, seed uint64, workers int) {
	rng := rand.New(rand.NewPCG(seed, 3))
	d := newDeck(cluster.Split(rng), c.cluster.Resources)
	c.run(ctx, rng, workers, func(ctx context.Context, g *generator) { c.list(ctx, g, d) })
}

// list compares a list, or the pages of one.
func (c *comparator) list(ctx context.Context, g *generator, d *deck) {
	switch {
	case !g.one(3):
		c.deal(ctx, g, d)
	case g.one(20):
		if q, ok := g.forged(); ok {
			c.compare(ctx, q)
		}
	default:
		c.some(ctx, g)
	}
}

// deal compares what the next card of the deck says.
func (c *comparator) deal(ctx context.Context, g *generator, d *deck) {
	next := d.deal()
	done := false
	if q, ok := g.list(next.class, next.Resource); ok {
		if next.Page == nextPage {
			done = c.walk(ctx, g, q, 3) > 1
		} else {
			answers, ok := c.compare(ctx, q)
			done = ok && answers.proxy.Code == http.StatusOK
		}
	}
	// A walk may have turned to another class on the way.
	if !done || !c.report.has(next.class) {
		d.back(next)
	}
}

// some compares any list, or where it is a page the whole walk now and then.
func (c *comparator) some(ctx context.Context, g *generator) {
	q, ok := g.someList()
	switch {
	case !ok:
	case !q.Odd && q.Semantics != anyRevision && q.Query.Get("limit") != "" && g.one(6):
		c.walk(ctx, g, q, maxPages)
	default:
		c.compare(ctx, q)
		if g.one(8) { // somebody else asks for the same list right after it
			q.User = pick(g, c.cluster.Users...)
			c.compare(ctx, q)
		}
	}
}

// pair is what both sides said to one question.
type pair struct {
	proxy, direct ask.Answer
}

// waited reports whether one side, and not the other, had kube-apiserver wait in vain until its
// cache of the resource came as far as what was asked for: asked at two moments, it may say both
// (storage/cacher, waitUntilFreshAndBlock, which gives up after three seconds; an exact revision is
// read from that cache too).
func (a pair) waited() bool {
	return a.proxy.NotThereYet() != a.direct.NotThereYet()
}

// compare puts a question to both sides. It is not ok if there was a difference or no answer.
func (c *comparator) compare(ctx context.Context, q question) (answers pair, ok bool) {
	begun := time.Now()
	answers, found := c.once(ctx, q)
	for found != nil && answers.waited() && time.Since(begun) < patience && clock.Sleep(ctx, 50*time.Millisecond) {
		c.report.count("asked again")
		answers, found = c.once(ctx, q)
	}
	if ctx.Err() != nil {
		return answers, false
	}
	if found == nil {
		c.report.list(q, answers.proxy)
		return answers, true
	}
	found.Question = q.String()
	found.CacheStatus = answers.proxy.Source()
	c.report.differs(*found)
	return answers, false
}

// indexEnds reports whether an answer lacks a token only because the index of pods by node ends
// there: kube-apiserver takes the first page of a NotOlderThan or Consistent with spec.nodeName=
// from the index, and what follows a page is what follows in the index. Its Exact form, which that
// page is held against, has a token while there are keys of any kind. That nothing of that node
// follows is not believed but asked.
func (c *comparator) indexEnds(ctx context.Context, q question, a pair) bool {
	node, ok := q.indexed()
	if !ok || a.proxy.Code != http.StatusOK || a.direct.Code != http.StatusOK {
		return false
	}
	token, ok := body.OnlyTokenMissing(a.proxy.Body, a.direct.Body)
	if !ok {
		return false
	}
	rest, err := c.direct.ask(ctx, question{
		// Where the selector leaves one namespace of all, the token is relative to that.
		Resource: q.Resource, Namespace: q.narrowed(), User: q.User, Semantics: continued,
		Query: url.Values{"continue": {token}, "fieldSelector": {cluster.NodeNameField + "=" + fields.EscapeValue(node)}},
	})
	if err != nil || rest.Code != http.StatusOK {
		return false
	}
	list, err := ask.ReadList(rest.Body)
	return err == nil && len(list.Objects) == 0
}

// once asks both sides once and returns how they differ.
func (c *comparator) once(ctx context.Context, q question) (answers pair, _ *difference) {
	asked := time.Now()
	var err error
	if answers.proxy, err = c.proxy.ask(ctx, q); err != nil {
		return answers, differs(silent, "%v", err)
	}
	same := q
	if q.effective().moving() && answers.proxy.Code == http.StatusOK {
		meta, err := body.ListMeta(answers.proxy.Body)
		if err != nil {
			return answers, differs(wrongBody, "%v", err)
		}
		revision, err := strconv.ParseUint(meta.ResourceVersion, 10, 64)
		if err != nil {
			return answers, differs(wrongBody, "%v", err)
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
		same = q.at(revision, c.pagesAny && !answers.proxy.FromMemory())
	}
	if answers.direct, err = c.direct.ask(ctx, same); err != nil {
		return answers, differs(silent, "%v", err)
	}
	if answers.direct.Code == http.StatusGone && answers.proxy.Code == http.StatusOK {
		c.report.count(expired)
		return answers, nil
	}
	d := c.difference(q, answers.proxy, answers.direct)
	if d != nil && d.Kind == wrongBody && c.indexEnds(ctx, q, answers) {
		c.report.count("pages that ended with the index")
		return answers, nil
	}
	return answers, d
}

// shape asks the API server the very question, whose answer moves, and compares what does not.
func (c *comparator) shape(ctx context.Context, q question, header http.Header, continues bool) *difference {
	direct, err := c.direct.ask(ctx, q)
	switch {
	case err != nil:
		return differs(silent, "%v", err)
	case direct.Code == http.StatusGatewayTimeout && q.Semantics == notOlderThan:
		return nil // its cache of this resource has not come that far
	case direct.Code != http.StatusOK:
		return differs(wrongStatus, "200, not %d: %.300s", direct.Code, direct.Body)
	case direct.Header.Get("Content-Type") != header.Get("Content-Type"):
		return differs(wrongHeader, "%q, not %q", header.Get("Content-Type"), direct.Header.Get("Content-Type"))
	case q.Semantics != anyRevision, c.pagesAny:
		return nil // how much follows a page may have changed
	}
	meta, err := body.ListMeta(direct.Body)
	if err != nil || (meta.Continue != "") != continues {
		return differs(wrongBody, "a token: %v, not %v, %v", continues, meta.Continue != "", err)
	}
	return nil
}

// age checks the revision of an answer that may move. An Any that was forwarded may be of any age:
// it is as old as kube-apiserver's own cache.
func (c *comparator) age(q question, a ask.Answer, revision uint64, asked time.Time) *difference {
	demand, wrong := oracle.List{Revision: q.Revision}, tooOld
	switch q.effective() {
	case notOlderThan:
	case anyRevision:
		if !a.FromMemory() {
			return nil
		}
		demand, wrong = oracle.List{Holds: oracle.Within(bound, asked)}, frozen
	case mostRecent:
		demand = oracle.List{Holds: asked}
	default:
		return nil
	}
	newest := func(at time.Time) uint64 { return c.cluster.Ledger.Before(q.Resource.GroupResource(), at) }
	if err := demand.Judge(revision, newest); err != nil {
		return differs(wrong, "%v", err)
	}
	return nil
}

// difference holds listproxy's answer against the API server's.
func (c *comparator) difference(q question, got, want ask.Answer) *difference {
	if !strings.HasPrefix(got.Source(), "listproxy; ") {
		return differs(unmarked, "%v", got.Header)
	}
	if got.Code != want.Code {
		return differs(wrongStatus, "%d, not %d:\n  %.300s\n  %.300s", got.Code, want.Code, got.Body, want.Body)
	}
	if d := headerDifference(q, got.Header, want.Header); d != nil {
		return d
	}
	if q.Clocked {
		got.Body, want.Body = ages.ReplaceAll(got.Body, []byte(`"age"`)), ages.ReplaceAll(want.Body, []byte(`"age"`))
	}
	if bytes.Equal(got.Body, want.Body) {
		return nil
	}
	if body.SameButToken(got.Body, want.Body) {
		c.report.count("tokens that differed in the slash")
		return nil
	}
	if got.Code == http.StatusGatewayTimeout && bytes.Equal(current.ReplaceAll(got.Body, nil), current.ReplaceAll(want.Body, nil)) {
		return nil
	}
	return differs(wrongBody, "%s", oracle.Difference(got.Body, want.Body))
}

// ages are what the cells of a Table have in them that follows the clock. Tables are not answered from memory.
var ages = regexp.MustCompile(`"(\d+[smhdy])+"`)

// current is how far the API server was when it refused a revision of the future.
var current = regexp.MustCompile(`current: \d+`)

// headerDifference compares all headers, but those that doc.go names.
func headerDifference(q question, got, want http.Header) *difference {
	strip := func(h http.Header) http.Header {
		h = h.Clone()
		for name := range h {
			if strings.HasPrefix(name, "X-Kubernetes-Pf-") {
				h.Del(name)
			}
		}
		for _, name := range []string{"Date", "Content-Length", "Cache-Status", "X-Future"} {
			h.Del(name)
		}
		if q.Header.Get("Audit-Id") == "" && len(h["Audit-Id"]) == 1 {
			h.Set("Audit-Id", "one")
		}
		return h
	}
	if d := cmp.Diff(strip(want), strip(got)); d != "" {
		return differs(wrongHeader, "(-kube-apiserver +listproxy)\n%s", d)
	}
	return nil
}

// walk compares the pages of a list, from a first question on, and returns how many it had. Each
// page is asked of both sides, and the token for the next is taken from either: tokens are
// interchangeable, and so is the one who goes on.
func (c *comparator) walk(ctx context.Context, g *generator, q question, most int) (pages int) {
	for range most {
		answers, ok := c.compare(ctx, q)
		if !ok || answers.proxy.Code >= 300 {
			return pages
		}
		pages++
		from := answers.proxy
		if g.one(2) && answers.direct.Code < 300 {
			from = answers.direct
		}
		meta, err := body.ListMeta(from.Body)
		if err != nil {
			c.report.differs(difference{Kind: wrongBody, Question: q.String(), Detail: err.Error()})
			return pages
		}
		if meta.Continue == "" {
			break
		}
		q = g.next(q, meta.Continue)
	}
	c.report.count("walks")
	return pages
}
