package differential

import (
	"bytes"
	"context"
	"maps"
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
	// bound is listproxy's --staleness-bound. A list at anyRevision that is asked for at 12:00:20 and comes from memory must
	// have each write that was confirmed until 12:00:10. (The tests allow a second more, oracle.Tolerance.)
	bound = 10 * time.Second
	// patience is the longest wait for something that must come. It only ends a test that fails.
	patience = 5 * time.Minute
	// longWalk is the number of pages after which a walk through a list ends. A shortWalk has the first page and two next
	// pages.
	longWalk, shortWalk = 40, 3
)

// The second number with which each test seeds its generator (rand.NewPCG). The first, -differential.seed, is the same for all.
// So the random choices of one test do not depend on those of another.
const (
	listsStream   = 3
	watchesStream = 5
	quietStream   = 7
	oddStream     = 9
)

// comparator asks listproxy and kube-apiserver the same questions, and reports how the answers differ. It is safe for
// concurrent use.
type comparator struct {
	cluster       *cluster.Cluster
	direct, proxy *side // kube-apiserver and listproxy
	report        *report
	// revisionsBefore has, for each resource, a revision from before listproxy started. No state in memory is older.
	revisionsBefore map[schema.GroupResource]uint64

	watchList bool // the API server has streaming lists
	hasShards bool // the API server has sharded lists and watches
	// obeysLimitAtZero means that the API server obeys a limit at resourceVersion=0, as it does without a watch cache.
	obeysLimitAtZero bool

	bookmarks bookmarkRecord
}

// runWorkers runs workers, which call compare again and again until ctx ends. Each has a generator of its own.
func (c *comparator) runWorkers(ctx context.Context, rng *rand.Rand, workers int, compare func(context.Context, *generator)) {
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

// compareLists compares lists until ctx ends.
func (c *comparator) compareLists(ctx context.Context, seed uint64, workers int) {
	rng := rand.New(rand.NewPCG(seed, listsStream))
	d := newDeck(cluster.Split(rng), c.cluster.Resources)
	c.runWorkers(ctx, rng, workers, func(ctx context.Context, g *generator) { c.compareNextList(ctx, g, d) })
}

// compareNextList compares a list or its pages. Two of three times that is the list of the deck's next card. Otherwise it is a
// random list, and now and then a page of a token that no list had.
func (c *comparator) compareNextList(ctx context.Context, g *generator, d *deck) {
	switch {
	case !g.oneIn(3):
		c.compareCard(ctx, g, d)
	case g.oneIn(20):
		if q, ok := g.forgedToken(); ok {
			c.compare(ctx, q)
		}
	default:
		c.compareRandom(ctx, g)
	}
}

// compareCard compares a list of the class and resource on the deck's next card.
func (c *comparator) compareCard(ctx context.Context, g *generator, d *deck) {
	next := d.deal()
	isCompared := false
	if q, ok := g.listOf(next.class, next.Resource); ok {
		if next.Page == nextPage {
			isCompared = c.walk(ctx, g, q, shortWalk) > 1
		} else {
			answers, ok := c.compare(ctx, q)
			isCompared = ok && answers.proxy.Code == http.StatusOK
		}
	}
	// A walk may have changed the selector or the representation on the way, so that the list was of another class.
	if !isCompared || !c.report.hasList(next.class) {
		d.putBack(next)
	}
}

// compareRandom compares a random list. If that is a first page, it now and then compares all pages.
func (c *comparator) compareRandom(ctx context.Context, g *generator) {
	q, ok := g.randomList()
	if !ok {
		return
	}
	if !q.Odd && q.Semantics != anyRevision && q.Query.Get("limit") != "" && g.oneIn(6) {
		c.walk(ctx, g, q, longWalk)
		return
	}
	c.compare(ctx, q)
	if g.oneIn(8) { // another user asks for the same list right afterwards
		q.User = pick(g, c.cluster.Users...)
		c.compare(ctx, q)
	}
}

// pair has the answers of listproxy and of kube-apiserver to one question.
type pair struct {
	proxy, direct ask.Answer
}

// oneTimedOut reports whether one of the answers, but not the other, is the error that kube-apiserver's cache did not reach the
// revision within three seconds (storage/cacher, waitUntilFreshAndBlock). Such a pair cannot be compared.
func (p pair) oneTimedOut() bool {
	return p.proxy.NotThereYet() != p.direct.NotThereYet()
}

// compare sends a question to both sides, and adds the comparison or the difference to the report. It asks again while only one
// side timed out. ok is false if there was a difference, or if ctx ended.
func (c *comparator) compare(ctx context.Context, q question) (answers pair, ok bool) {
	const pause = 50 * time.Millisecond
	started := time.Now()
	answers, d := c.compareOnce(ctx, q)
	for d != nil && answers.oneTimedOut() && time.Since(started) < patience && clock.Sleep(ctx, pause) {
		c.report.count("asked again")
		answers, d = c.compareOnce(ctx, q)
	}
	if ctx.Err() != nil {
		return answers, false
	}
	if d == nil {
		c.report.addList(q, answers.proxy)
		return answers, true
	}
	d.Question = q.String()
	d.CacheStatus = answers.proxy.Source()
	c.report.addDifference(*d)
	return answers, false
}

// indexEnds reports whether listproxy's answer may lack the token that kube-apiserver's exact list has, since no more pods of
// the node follow.
//
// Say the pods are a and b of the node n, and c of another node. kube-apiserver has an index of pods by node. From there it
// takes the first page of a notOlderThan or consistent list with spec.nodeName=n and limit=2. The page has a and b and no
// token, since the index has no more pods of n. But the page is compared with one at an exact revision, which is not from the
// index: it has a token, since c follows. So indexEnds asks kube-apiserver for the pods of n behind that token. There must be
// none.
func (c *comparator) indexEnds(ctx context.Context, q question, answers pair) bool {
	node, ok := q.indexedNode()
	if !ok || answers.proxy.Code != http.StatusOK || answers.direct.Code != http.StatusOK {
		return false
	}
	token, ok := body.OnlyTokenMissing(answers.proxy.Body, answers.direct.Body)
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

// compareOnce sends a question to both sides once and returns how the answers differ. listproxy is asked first. If the answer
// changes with time, kube-apiserver is asked for the same list at exactly the revision of listproxy's answer.
func (c *comparator) compareOnce(ctx context.Context, q question) (answers pair, _ *difference) {
	asked := time.Now()
	var err error
	answers.proxy, err = c.proxy.ask(ctx, q)
	if err != nil {
		return answers, newDifference(noAnswer, "%v", err)
	}
	directQuestion := q
	if q.effectiveSemantics().changesWithTime() && answers.proxy.Code == http.StatusOK {
		var d *difference
		directQuestion, d = c.atRevisionOf(ctx, answers.proxy, q, asked)
		if d != nil {
			return answers, d
		}
	}
	answers.direct, err = c.direct.ask(ctx, directQuestion)
	if err != nil {
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

// atRevisionOf returns the question for the same list at exactly the revision of listproxy's answer. It returns a difference if
// the answer is wrong at any revision: too old, or of another shape than kube-apiserver's.
func (c *comparator) atRevisionOf(ctx context.Context, proxy ask.Answer, q question, asked time.Time) (question, *difference) {
	meta, err := body.ListMeta(proxy.Body)
	if err != nil {
		return q, newDifference(wrongBody, "%v", err)
	}
	revision, err := strconv.ParseUint(meta.ResourceVersion, 10, 64)
	if err != nil {
		return q, newDifference(wrongBody, "%v", err)
	}
	if d := c.checkAge(q, proxy, revision, asked); d != nil {
		return q, d
	}
	const shapeInterval = 8 // one answer in 8 is checked, since that costs one more request
	if revision%shapeInterval == 0 {
		if d := c.checkShape(ctx, q, proxy.Header, meta.Continue != ""); d != nil {
			return q, d
		}
	}
	return q.atRevision(revision, c.obeysLimitAtZero && !proxy.FromMemory()), nil
}

// checkShape sends kube-apiserver the question itself, though its answer changes with time. It compares what does not change:
// the status, the Content-Type, and for a list at anyRevision whether a next page follows. header and hasToken are those of
// listproxy's answer.
func (c *comparator) checkShape(ctx context.Context, q question, header http.Header, hasToken bool) *difference {
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
	case q.Semantics != anyRevision, c.obeysLimitAtZero:
		return nil // whether a page follows may have changed
	}
	meta, err := body.ListMeta(direct.Body)
	directHasToken := meta.Continue != ""
	if err != nil || directHasToken != hasToken {
		return newDifference(wrongBody, "a token: %v, not %v, %v", hasToken, directHasToken, err)
	}
	return nil
}

// checkAge returns a difference if the revision of listproxy's answer is too old for the question, which was sent at the time
// asked. A forwarded list at anyRevision may have any age: it is as old as kube-apiserver's cache.
func (c *comparator) checkAge(q question, proxy ask.Answer, revision uint64, asked time.Time) *difference {
	kind := tooOld
	var required oracle.List
	switch q.effectiveSemantics() {
	case notOlderThan:
		required.Revision = q.Revision
	case anyRevision:
		if !proxy.FromMemory() {
			return nil
		}
		kind = tooStale
		required.ConfirmedBy = oracle.Within(bound, asked)
	case consistent:
		required.ConfirmedBy = asked
	default:
		return nil
	}
	newestBefore := func(at time.Time) uint64 { return c.cluster.Ledger.Before(q.Resource.GroupResource(), at) }
	if err := required.Judge(revision, newestBefore); err != nil {
		return newDifference(kind, "%v", err)
	}
	return nil
}

// difference returns how listproxy's answer got differs from kube-apiserver's want.
func (c *comparator) difference(q question, got, want ask.Answer) *difference {
	if !strings.HasPrefix(got.Source(), "listproxy; ") {
		return newDifference(noCacheStatus, "%v", got.Header)
	}
	if got.Code != want.Code {
		return newDifference(wrongStatus, "%d, not %d:\n  %.300s\n  %.300s", got.Code, want.Code, got.Body, want.Body)
	}
	if d := headerDifference(q, got.Header, want.Header); d != nil {
		return d
	}
	if q.HasAges {
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
	if got.Code == http.StatusGatewayTimeout &&
		bytes.Equal(currentRevision.ReplaceAll(got.Body, nil), currentRevision.ReplaceAll(want.Body, nil)) {
		return nil
	}
	return newDifference(wrongBody, "%s", oracle.Difference(got.Body, want.Body))
}

// ages matches the ages in a Table, such as "3m20s".
var ages = regexp.MustCompile(`"(\d+[smhdy])+"`)

// currentRevision matches a part of kube-apiserver's error for a revision of the future: the revision that its cache had
// reached.
var currentRevision = regexp.MustCompile(`current: \d+`)

// headerDifference compares the headers of two answers. Not compared are the Date, the Content-Length (it depends on the hops
// in between), the Cache-Status, the headers of kube-apiserver's flow control (X-Kubernetes-Pf-*), X-Future (which only the
// servers of TestOddServers send), and an Audit-Id that the server has made up.
func headerDifference(q question, got, want http.Header) *difference {
	// strip returns a copy without these headers.
	strip := func(header http.Header) http.Header {
		stripped := header.Clone()
		maps.DeleteFunc(stripped, func(name string, _ []string) bool { return strings.HasPrefix(name, "X-Kubernetes-Pf-") })
		for _, name := range []string{"Date", "Content-Length", "Cache-Status", "X-Future"} {
			stripped.Del(name)
		}
		if q.Header.Get("Audit-Id") == "" && len(stripped["Audit-Id"]) == 1 {
			stripped.Set("Audit-Id", "of the server")
		}
		return stripped
	}
	if d := cmp.Diff(strip(want), strip(got)); d != "" {
		return newDifference(wrongHeader, "(-kube-apiserver +listproxy)\n%s", d)
	}
	return nil
}

// walk compares up to maxPages pages of a list, one after the other, and returns their number. q asks for the first page. At
// random the token for the next page is listproxy's or kube-apiserver's, since each must understand the other's tokens.
func (c *comparator) walk(ctx context.Context, g *generator, q question, maxPages int) (pages int) {
	for range maxPages {
		answers, ok := c.compare(ctx, q)
		if !ok || answers.proxy.Code >= 300 {
			return pages
		}
		pages++
		page := answers.proxy.Body
		if g.oneIn(2) && answers.direct.Code < 300 {
			page = answers.direct.Body
		}
		meta, err := body.ListMeta(page)
		if err != nil {
			c.report.addDifference(difference{Kind: wrongBody, Question: q.String(), Detail: err.Error()})
			return pages
		}
		if meta.Continue == "" {
			break
		}
		q = g.followingPage(q, meta.Continue)
	}
	c.report.count("walks")
	return pages
}
