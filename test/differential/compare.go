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
	// bound is listproxy's --staleness-bound. A list of anyRevision from memory must hold each write that was confirmed so long
	// before the request.
	bound = 10 * time.Second
	// patience ends a wait for something that must come; no test passes because of it.
	patience = 5 * time.Minute
	// maxPages ends a walk.
	maxPages = 40
)

// Each test takes random numbers from its own stream of one seed.
const (
	listsStream   = 3
	watchesStream = 5
	quietStream   = 7
	oddStream     = 9
)

// comparator asks listproxy and kube-apiserver the same questions, and reports how the answers differ. Safe for concurrent use.
type comparator struct {
	cluster       *cluster.Cluster
	direct, proxy *side
	report        *report
	// revisionsBefore has a revision of each resource from before listproxy started. No state in memory is older.
	revisionsBefore map[schema.GroupResource]uint64

	// What the API server has: streaming lists, and sharded lists and watches.
	watchList, hasShards bool
	// pagesAny means that the API server obeys a limit at resourceVersion=0, as it does without a watch cache.
	pagesAny bool

	sent templates
}

// run has workers call compare until ctx ends, each with a generator of its own.
func (c *comparator) run(ctx context.Context, rng *rand.Rand, workers int, compare func(context.Context, *generator)) {
	var all sync.WaitGroup
	for range workers {
		g := &generator{rng: cluster.Split(rng), cluster: c.cluster, watchList: c.watchList, hasShards: c.hasShards}
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
	rng := rand.New(rand.NewPCG(seed, listsStream))
	d := newDeck(cluster.Split(rng), c.cluster.Resources)
	c.run(ctx, rng, workers, func(ctx context.Context, g *generator) { c.list(ctx, g, d) })
}

// list compares a list or its pages. Two of three times the list is of the deck's next card.
func (c *comparator) list(ctx context.Context, g *generator, d *deck) {
	switch {
	case !g.oneIn(3):
		c.compareCard(ctx, g, d)
	case g.oneIn(20):
		if q, ok := g.forged(); ok {
			c.compare(ctx, q)
		}
	default:
		c.compareRandom(ctx, g)
	}
}

// compareCard compares a list of the class and resource on the deck's next card.
func (c *comparator) compareCard(ctx context.Context, g *generator, d *deck) {
	next := d.deal()
	done := false
	if q, ok := g.listOf(next.class, next.Resource); ok {
		if next.Page == nextPage {
			const maxPages = 3 // the second is a next page
			done = c.walk(ctx, g, q, maxPages) > 1
		} else {
			answers, ok := c.compare(ctx, q)
			done = ok && answers.proxy.Code == http.StatusOK
		}
	}
	// A walk may have changed the class on the way.
	if !done || !c.report.has(next.class) {
		d.putBack(next)
	}
}

// compareRandom compares a random list. If that is a first page, it now and then compares all pages.
func (c *comparator) compareRandom(ctx context.Context, g *generator) {
	q, ok := g.randomList()
	switch {
	case !ok:
	case !q.Odd && q.Semantics != anyRevision && q.Query.Get("limit") != "" && g.oneIn(6):
		c.walk(ctx, g, q, maxPages)
	default:
		c.compare(ctx, q)
		if g.oneIn(8) { // another user asks for the same list right afterwards
			q.User = pick(g, c.cluster.Users...)
			c.compare(ctx, q)
		}
	}
}

// pair has the answers of both sides to one question.
type pair struct {
	proxy, direct ask.Answer
}

// oneTimedOut reports whether only one answer is an error because kube-apiserver's cache did not reach the revision within three
// seconds (storage/cacher, waitUntilFreshAndBlock). Such a pair cannot be compared.
func (a pair) oneTimedOut() bool {
	return a.proxy.NotThereYet() != a.direct.NotThereYet()
}

// compare sends a question to both sides and reports a difference. It is not ok if there was a difference, or if ctx ended.
func (c *comparator) compare(ctx context.Context, q question) (answers pair, ok bool) {
	const pause = 50 * time.Millisecond
	started := time.Now()
	answers, found := c.compareOnce(ctx, q)
	for found != nil && answers.oneTimedOut() && time.Since(started) < patience && clock.Sleep(ctx, pause) {
		c.report.count("asked again")
		answers, found = c.compareOnce(ctx, q)
	}
	if ctx.Err() != nil {
		return answers, false
	}
	if found == nil {
		c.report.comparedList(q, answers.proxy)
		return answers, true
	}
	found.Question = q.String()
	found.CacheStatus = answers.proxy.Source()
	c.report.add(*found)
	return answers, false
}

// indexEnds reports whether listproxy's answer lacks a token only because kube-apiserver's index of pods by node ends there.
//
// From this index kube-apiserver takes the first page of a notOlderThan or mostRecent with spec.nodeName=. It gives a token only
// if more pods of the node follow. The exact list that the page is compared with has a token if any pods follow. So this asks
// kube-apiserver whether pods of the node follow.
func (c *comparator) indexEnds(ctx context.Context, q question, a pair) bool {
	node, ok := q.indexedNode()
	if !ok || a.proxy.Code != http.StatusOK || a.direct.Code != http.StatusOK {
		return false
	}
	token, ok := body.OnlyTokenMissing(a.proxy.Body, a.direct.Body)
	if !ok {
		return false
	}
	rest, err := c.direct.ask(ctx, question{
		// If the selector leaves one namespace, the token is relative to that namespace.
		Resource: q.Resource, Namespace: q.namespaceRead(), User: q.User, Semantics: continued,
		Query: url.Values{"continue": {token}, "fieldSelector": {cluster.NodeNameField + "=" + fields.EscapeValue(node)}},
	})
	if err != nil || rest.Code != http.StatusOK {
		return false
	}
	list, err := ask.ReadList(rest.Body)
	return err == nil && len(list.Objects) == 0
}

// compareOnce sends a question to both sides once and returns how the answers differ. If the answer changes with time,
// kube-apiserver is asked for the list at exactly the revision of listproxy's answer.
func (c *comparator) compareOnce(ctx context.Context, q question) (answers pair, _ *difference) {
	asked := time.Now()
	var err error
	if answers.proxy, err = c.proxy.ask(ctx, q); err != nil {
		return answers, newDifference(noAnswer, "%v", err)
	}
	exactly := q
	if q.effective().changesWithTime() && answers.proxy.Code == http.StatusOK {
		var d *difference
		if exactly, d = c.atRevisionOf(ctx, answers.proxy, q, asked); d != nil {
			return answers, d
		}
	}
	if answers.direct, err = c.direct.ask(ctx, exactly); err != nil {
		return answers, newDifference(noAnswer, "%v", err)
	}
	if answers.direct.Code == http.StatusGone && answers.proxy.Code == http.StatusOK {
		c.report.addLost()
		return answers, nil
	}
	d := c.difference(q, answers.proxy, answers.direct)
	if d != nil && d.Kind == wrongBody && c.indexEnds(ctx, q, answers) {
		c.report.count("pages that ended with the index")
		return answers, nil
	}
	return answers, d
}

// atRevisionOf returns the question for the same list at exactly the revision of listproxy's answer a. It returns a difference if
// a is wrong at any revision: too old, or of another shape than kube-apiserver's answer.
func (c *comparator) atRevisionOf(ctx context.Context, a ask.Answer, q question, asked time.Time) (question, *difference) {
	meta, err := body.ListMeta(a.Body)
	if err != nil {
		return q, newDifference(wrongBody, "%v", err)
	}
	revision, err := strconv.ParseUint(meta.ResourceVersion, 10, 64)
	if err != nil {
		return q, newDifference(wrongBody, "%v", err)
	}
	if d := c.checkAge(q, a, revision, asked); d != nil {
		return q, d
	}
	const oneIn = 8 // answers, since it costs one more request
	if revision%oneIn == 0 {
		if d := c.checkShape(ctx, q, a.Header, meta.Continue != ""); d != nil {
			return q, d
		}
	}
	return q.at(revision, c.pagesAny && !a.FromMemory()), nil
}

// checkShape sends kube-apiserver a question whose answer changes with time, and compares what does not change: the status, the
// Content-Type, and for anyRevision whether a page follows.
func (c *comparator) checkShape(ctx context.Context, q question, header http.Header, continues bool) *difference {
	direct, err := c.direct.ask(ctx, q)
	switch {
	case err != nil:
		return newDifference(noAnswer, "%v", err)
	case direct.Code == http.StatusGatewayTimeout && q.Semantics == notOlderThan:
		return nil // kube-apiserver's cache has not reached the revision
	case direct.Code != http.StatusOK:
		return newDifference(wrongStatus, "200, not %d: %.300s", direct.Code, direct.Body)
	case direct.Header.Get("Content-Type") != header.Get("Content-Type"):
		return newDifference(wrongHeader, "%q, not %q", header.Get("Content-Type"), direct.Header.Get("Content-Type"))
	case q.Semantics != anyRevision, c.pagesAny:
		return nil // whether a page follows may have changed
	}
	meta, err := body.ListMeta(direct.Body)
	if err != nil || (meta.Continue != "") != continues {
		return newDifference(wrongBody, "a token: %v, not %v, %v", continues, meta.Continue != "", err)
	}
	return nil
}

// checkAge checks that the revision of an answer is not too old. A forwarded anyRevision may have any age: it is as old as
// kube-apiserver's cache.
func (c *comparator) checkAge(q question, a ask.Answer, revision uint64, asked time.Time) *difference {
	demand := oracle.List{Revision: q.Revision}
	wrong := tooOld
	switch q.effective() {
	case notOlderThan:
	case anyRevision:
		if !a.FromMemory() {
			return nil
		}
		demand = oracle.List{ConfirmedBy: oracle.Within(bound, asked)}
		wrong = frozen
	case mostRecent:
		demand = oracle.List{ConfirmedBy: asked}
	default:
		return nil
	}
	newest := func(at time.Time) uint64 { return c.cluster.Ledger.Before(q.Resource.GroupResource(), at) }
	if err := demand.Judge(revision, newest); err != nil {
		return newDifference(wrong, "%v", err)
	}
	return nil
}

// difference returns how listproxy's answer got differs from kube-apiserver's want.
func (c *comparator) difference(q question, got, want ask.Answer) *difference {
	if !strings.HasPrefix(got.Source(), "listproxy; ") {
		return newDifference(unmarked, "%v", got.Header)
	}
	if got.Code != want.Code {
		return newDifference(wrongStatus, "%d, not %d:\n  %.300s\n  %.300s", got.Code, want.Code, got.Body, want.Body)
	}
	if d := headerDifference(q, got.Header, want.Header); d != nil {
		return d
	}
	if q.Clocked {
		got.Body = ages.ReplaceAll(got.Body, []byte(`"age"`))
		want.Body = ages.ReplaceAll(want.Body, []byte(`"age"`))
	}
	if bytes.Equal(got.Body, want.Body) {
		return nil
	}
	if body.SameButToken(got.Body, want.Body) {
		c.report.count("tokens that differed in the slash")
		return nil
	}
	sameButCurrent := bytes.Equal(currentRevision.ReplaceAll(got.Body, nil), currentRevision.ReplaceAll(want.Body, nil))
	if got.Code == http.StatusGatewayTimeout && sameButCurrent {
		return nil
	}
	return newDifference(wrongBody, "%s", oracle.Difference(got.Body, want.Body))
}

// ages matches the ages in a Table.
var ages = regexp.MustCompile(`"(\d+[smhdy])+"`)

// currentRevision matches the revision that kube-apiserver had when it refused one of the future.
var currentRevision = regexp.MustCompile(`current: \d+`)

// headerDifference compares all headers except those that doc.go names.
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
		return newDifference(wrongHeader, "(-kube-apiserver +listproxy)\n%s", d)
	}
	return nil
}

// walk compares up to maxPages pages of a list, and returns their number. q asks for the first. The token for the next page is
// taken from either side at random, since tokens are interchangeable.
func (c *comparator) walk(ctx context.Context, g *generator, q question, maxPages int) (pages int) {
	for range maxPages {
		answers, ok := c.compare(ctx, q)
		if !ok || answers.proxy.Code >= 300 {
			return pages
		}
		pages++
		from := answers.proxy
		if g.oneIn(2) && answers.direct.Code < 300 {
			from = answers.direct
		}
		meta, err := body.ListMeta(from.Body)
		if err != nil {
			c.report.add(difference{Kind: wrongBody, Question: q.String(), Detail: err.Error()})
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
