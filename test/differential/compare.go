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
	// bound is listproxy's --staleness-bound. A list of anyRevision from memory must have each write that was confirmed this time
	// before the request, or earlier.
	bound = 10 * time.Second
	// patience bounds a wait for something that must come. No test passes because of it.
	patience = 5 * time.Minute
	// maxPages bounds a walk through the pages of a list.
	maxPages = 40
)

// The second halves of seeds. They make the random choices of the tests independent of each other.
const (
	listsStream   = 3
	watchesStream = 5
	quietStream   = 7
	oddStream     = 9
)

// comparator asks listproxy and kube-apiserver the same questions, and reports how the answers differ. It is safe for concurrent
// use.
type comparator struct {
	cluster       *cluster.Cluster
	direct, proxy *side // kube-apiserver and listproxy
	report        *report
	// revisionsBefore has a revision of each resource from before listproxy started. No state in memory is older.
	revisionsBefore map[schema.GroupResource]uint64

	watchList bool // the API server has streaming lists
	hasShards bool // the API server has sharded lists and watches
	// obeysLimitAtZero means that the API server obeys a limit at resourceVersion=0, as it does without a watch cache.
	obeysLimitAtZero bool

	bookmarks bookmarkRecord
}

// runWorkers has workers call compare until ctx ends, each with a generator of its own.
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

// compareNextList compares a list or its pages. Two of three times the list is of the deck's next card.
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
			const maxPages = 3 // the second is a next page
			isCompared = c.walk(ctx, g, q, maxPages) > 1
		} else {
			answers, ok := c.compare(ctx, q)
			isCompared = ok && answers.proxy.Code == http.StatusOK
		}
	}
	// A walk may have changed the class on the way.
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
		c.walk(ctx, g, q, maxPages)
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

// oneTimedOut reports whether only one answer is an error because kube-apiserver's cache did not reach the revision within three
// seconds (storage/cacher, waitUntilFreshAndBlock). Such a pair cannot be compared.
func (p pair) oneTimedOut() bool {
	return p.proxy.NotThereYet() != p.direct.NotThereYet()
}

// compare sends a question to both sides and reports a difference. ok is false if there was a difference, or if ctx ended.
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

// indexEnds reports whether listproxy's answer lacks a token only because kube-apiserver's index of pods by node ends there.
//
// From this index kube-apiserver takes the first page of a notOlderThan or mostRecent with spec.nodeName=. It gives a token only
// if more pods of the node follow. The exact list that the page is compared with has a token if any pods follow. So indexEnds asks
// kube-apiserver whether pods of the node follow.
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

// compareOnce sends a question to both sides once and returns how the answers differ. If the answer changes with time,
// kube-apiserver is asked for the list at exactly the revision of listproxy's answer.
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

// atRevisionOf returns the question for the same list at exactly the revision of listproxy's answer. It returns a difference if the
// answer is wrong at any revision: too old, or of another shape than kube-apiserver's.
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

// checkShape sends kube-apiserver a question whose answer changes with time, and compares what does not change: the status, the
// Content-Type, and for anyRevision whether a page follows. header and hasToken are those of listproxy's answer.
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

// checkAge checks that the revision of listproxy's answer is not too old. A forwarded anyRevision may have any age: it is as old as
// kube-apiserver's cache.
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
	case mostRecent:
		required.ConfirmedBy = asked
	default:
		return nil
	}
	newest := func(at time.Time) uint64 { return c.cluster.Ledger.Before(q.Resource.GroupResource(), at) }
	if err := required.Judge(revision, newest); err != nil {
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

// ages matches the ages in a Table.
var ages = regexp.MustCompile(`"(\d+[smhdy])+"`)

// currentRevision matches the revision that kube-apiserver had when it refused one of the future.
var currentRevision = regexp.MustCompile(`current: \d+`)

// headerDifference compares all headers except those that doc.go names, and X-Future, which only odd servers send.
func headerDifference(q question, got, want http.Header) *difference {
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

// walk compares up to maxPages pages of a list, one after the other, and returns their number. q asks for the first page. The
// token for the next page comes from either side at random, since tokens are interchangeable.
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
