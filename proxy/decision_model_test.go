package proxy

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/authz"
	"github.com/listproxy/listproxy/proxy/cluster"
	"github.com/listproxy/listproxy/proxy/limits"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/authntest"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/observetest"
	"github.com/listproxy/listproxy/test/proxytest"
)

const (
	modelServices    = "/apis/apiregistration.k8s.io/v1/apiservices"
	modelDefinitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	modelLeases      = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
	modelStaleness   = 90 * time.Second
	// modelVerify is longer than it may take to find that other API servers write the object in other bytes,
	// and to load it again, where they answer.
	modelVerify = 11 * time.Minute
	// modelSilence is longer than any stream is believed that tells nothing.
	modelSilence = 4 * time.Minute
)

// modelEpochs count what has changed in a modelWorld.
type modelEpochs struct{ Definition, Servers, Catalog, Checked, Past int }

// modelWorld is a cluster with one custom resource, whose one object says in its bytes under which
// epochs it was written.
type modelWorld struct {
	*proxytest.FakeAPI
	handler *Handler
	// probeTakes is how long a probe of a feed takes, how far the API server is.
	probeTakes time.Duration

	mu       sync.Mutex
	epochs   modelEpochs
	revision int
	watches  []*io.PipeWriter
	// loaded is the Past of the newest state that a feed has loaded.
	loaded int
	// told counts what was told of definitions, APIServices and Leases.
	told int
	// failing: nothing can be loaded.
	failing bool
	// doubtful is until when answers may be those of former API servers: other ones can answer.
	doubtful time.Time
	// away: the API server does not answer feeds; since when.
	away  bool
	since time.Time
	// deaf has since when nothing is told of what is at a path.
	deaf map[string]time.Time
	// rights counts what was taken away; reviewed is what it was when a review was last answered.
	rights, reviewed int
	reviews          chan struct{}
	holder           int
	// compresses: streaming lists come with gzip.
	compresses bool
	// bulk makes the object long; it has nothing to escape.
	bulk string
}

func (w *modelWorld) item() string {
	return fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget",`+
		`"metadata":{"name":"a","namespace":"n","resourceVersion":"%d"},"spec":"%+v%s"}`,
		w.revision, w.epochs, w.bulk)
}

func (w *modelWorld) list(items string) string {
	return fmt.Sprintf(`{"apiVersion":"example.com/v1","items":[%s],"kind":"WidgetList","metadata":{"continue":"","resourceVersion":"%d"}}`+"\n", items, w.revision)
}

func modelEvent(kind, object string) string {
	return fmt.Sprintf(`{"type":%q,"object":%s}`+"\n", kind, object)
}

// names is the list's metadata.
func (w *modelWorld) names() string {
	return fmt.Sprintf(`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"%d"},"items":[`+
		`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a","namespace":"n","resourceVersion":"%d"}}]}`+"\n", w.revision, w.revision)
}

// feed answers a feed. A watch that is to go on where another one broke is told that this is too
// old. What the newest state is compared with is there as long as nothing has happened since.
func (w *modelWorld) feed(r *http.Request) (*http.Response, error) {
	if strings.Contains(r.URL.Query().Get("fieldSelector"), "~") {
		w.mu.Lock()
		takes := w.probeTakes
		w.mu.Unlock()
		time.Sleep(takes)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	query, accept := r.URL.Query(), r.Header.Get("Accept")
	watches, exact := query.Get("watch") != "", query.Get("resourceVersionMatch") == "Exact"
	loads := query.Get("sendInitialEvents") != "" && query.Get("fieldSelector") == "" || !watches && !exact && query.Get("fieldSelector") == ""
	if w.away || w.failing && loads {
		return nil, io.ErrUnexpectedEOF
	}
	bookmark := fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"annotations":{"k8s.io/initial-events-end":"true"},"resourceVersion":"%d"}}`, w.revision)
	switch {
	case query.Get("sendInitialEvents") != "" && query.Get("fieldSelector") != "":
		res := proxytest.JSONResponse(r, http.StatusOK, modelEvent("BOOKMARK", bookmark))
		res.Uncompressed = w.compresses // net/http has read it
		return res, nil
	case query.Get("sendInitialEvents") != "":
		w.loaded = w.epochs.Past
		body, in := io.Pipe()
		w.watches = append(w.watches, in)
		context.AfterFunc(r.Context(), func() { _ = in.CloseWithError(r.Context().Err()) })
		res := proxytest.JSONResponse(r, http.StatusOK, "")
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(strings.NewReader(modelEvent("ADDED", w.item())+modelEvent("BOOKMARK", bookmark)), body), body}
		return res, nil
	case watches && query.Get("fieldSelector") != "":
		return proxytest.JSONResponse(r, http.StatusOK, modelEvent("ADDED", w.item())), nil
	case watches, exact && query.Get("resourceVersion") != strconv.Itoa(w.revision):
		return proxytest.JSONResponse(r, http.StatusGone, `{"kind":"Status","apiVersion":"v1","code":410}`), nil
	case strings.Contains(accept, "protobuf"):
		return proxytest.JSONResponse(r, http.StatusNotAcceptable, ""), nil
	case strings.Contains(accept, "PartialObjectMetadataList"):
		return proxytest.JSONResponse(r, http.StatusOK, w.names()), nil
	case query.Get("fieldSelector") != "":
		return proxytest.JSONResponse(r, http.StatusOK, w.list("")), nil
	}
	return proxytest.JSONResponse(r, http.StatusOK, w.list(w.item())), nil
}

// review answers when it may.
func (w *modelWorld) review(r *http.Request) (*http.Response, error) {
	<-w.reviews
	w.mu.Lock()
	w.reviewed = w.rights
	w.mu.Unlock()
	return proxytest.AnswerReview(r, authorizationv1.SubjectAccessReviewStatus{Allowed: true})
}

func (w *modelWorld) service(remote bool) string {
	service := ""
	if remote {
		service = `,"service":{"namespace":"n","name":"s","port":443}`
	}
	return fmt.Sprintf(`{"kind":"APIService","apiVersion":"apiregistration.k8s.io/v1","metadata":{"name":"v1.example.com","resourceVersion":"%d",`+
		`"labels":{"kube-aggregator.kubernetes.io/automanaged":"true"}},"spec":{"group":"example.com","version":"v1"%s}}`, w.told, service)
}

func (w *modelWorld) definition() string {
	return fmt.Sprintf(`{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1",`+
		`"metadata":{"name":"widgets.example.com","resourceVersion":"%d","generation":%d},`+
		`"spec":{"group":"example.com","scope":"Namespaced","versions":[{"name":"v1","served":true}]},`+
		`"status":{"conditions":[{"type":"Established","status":"True"}]}}`, w.told, w.epochs.Definition)
}

func (w *modelWorld) lease() string {
	return fmt.Sprintf(`{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"one","namespace":"kube-system","resourceVersion":"%d"},"spec":{"holderIdentity":"one_%d"}}`,
		w.told, w.holder)
}

// tell makes one change of what path has, and what it means for what is written, known to whoever
// follows path.
func (w *modelWorld) tell(path string, object func() string, change func()) {
	w.mu.Lock()
	change()
	w.revision++
	w.told++
	is := object()
	w.mu.Unlock()
	w.Mu.Lock()
	w.Collections[path].Objects = []string{is}
	w.Mu.Unlock()
	w.Event(path, "MODIFIED", is)
}

var modelWidgets = snapshot.Resource{
	GroupVersionResource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"},
	Namespaced:           true, Representation: media.JSON,
}

// step makes something happen, and returns what.
func (w *modelWorld) step() string {
	if len(w.deaf) > 0 {
		switch rand.IntN(3) {
		case 0:
			time.Sleep(modelSilence)
			return "silence"
		case 1:
			w.answered()
			return "heard again"
		}
	}
	switch n := rand.IntN(18); {
	case n == 0 && w.deaf[modelDefinitions].IsZero():
		w.tell(modelDefinitions, w.definition, func() { w.epochs.Definition++ })
		return "definition"
	case n == 1:
		w.tell(modelLeases, w.lease, w.replace)
		return "servers"
	case n == 2 && w.deaf[modelServices].IsZero():
		w.tell(modelServices, func() string { return w.service(true) }, func() { w.epochs.Catalog++ })
		w.tell(modelServices, func() string { return w.service(false) }, func() { w.epochs.Catalog++ })
		return "catalog, there and back"
	case n == 3:
		w.mu.Lock()
		w.epochs.Checked++
		w.revision++
		w.mu.Unlock()
		w.handler.Collections.Invalidate(snapshot.Invalidation{Cause: snapshot.Mismatch, Scope: snapshot.OfCollection(modelWidgets)})
		return "self-check"
	case n == 4:
		w.putBack(1)
		time.Sleep(time.Duration(rand.IntN(3)) * time.Second)
		return "another past"
	case n == 5:
		w.mu.Lock()
		w.away, w.since = !w.away, time.Now()
		w.mu.Unlock()
		return fmt.Sprint("away ", w.away)
	case n == 6:
		w.deafen(modelDefinitions)
		return "deaf to definitions"
	case n == 7:
		w.deafen(modelServices)
		return "deaf to APIServices"
	case n == 8:
		w.mu.Lock()
		w.rights++
		w.mu.Unlock()
		w.handler.Authorizer.Flush()
		return "rights"
	case n == 9:
		w.putBack(-2)
		time.Sleep(40 * time.Second) // it is loaded again
		synctest.Wait()
		w.write(5)
		return "another past, which has got further"
	case n == 10:
		w.cut(func() { w.away, w.failing = false, true })
		time.Sleep(time.Duration(rand.IntN(10)) * time.Second)
		return "the span ends"
	case n == 11:
		w.mu.Lock()
		w.away, w.since = true, time.Now()
		w.mu.Unlock()
		time.Sleep(modelStaleness + time.Second)
		return "away for long"
	case n == 12, n == 13:
		w.write(5)
		synctest.Wait()
		w.cut(func() { w.away = false })
		time.Sleep(5 * time.Second)
		return "another past with the same state"
	case n >= 16:
		w.writeLate()
		return "a write that is told late"
	}
	time.Sleep(time.Duration(rand.IntN(100)) * time.Second)
	return "time"
}

// cut ends the watches of feeds when something has happened.
func (w *modelWorld) cut(happened func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	happened()
	for _, watch := range w.watches {
		_ = watch.CloseWithError(io.ErrUnexpectedEOF)
	}
	w.watches = nil
}

// replace puts another API server behind the upstream.
func (w *modelWorld) replace() {
	w.holder++
	w.epochs.Servers++
	w.doubtful = time.Now().Add(modelVerify)
}

// lose makes feeds lose their state: a stream tells of what cannot be. It is loaded again after a time.
func (w *modelWorld) lose(again time.Duration) {
	w.mu.Lock()
	w.failing = true
	watches := w.watches
	event := modelEvent("DELETED", fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget",`+
		`"metadata":{"name":"unknown","namespace":"n","resourceVersion":"%d"}}`, w.revision+1))
	w.mu.Unlock()
	for _, watch := range watches {
		_, _ = io.WriteString(watch, event)
	}
	w.cut(func() {})
	time.AfterFunc(again, func() { w.cut(func() { w.failing = false }) })
}

// putBack replaces the storage by one with another past, whose revision is so much higher. A feed
// that follows its watch finds out by itself. To one that has lost it only the Leases can tell: API
// servers are started again for that.
func (w *modelWorld) putBack(revisions int) {
	w.mu.Lock()
	follows := len(w.watches) > 0
	w.mu.Unlock()
	w.cut(func() { w.epochs.Past++; w.revision += revisions; w.away = false })
	if !follows {
		w.tell(modelLeases, w.lease, w.replace)
	}
}

// write changes the object at a revision so much later, and tells feeds.
func (w *modelWorld) write(later int) {
	w.mu.Lock()
	w.revision += later
	watches, event := w.watches, modelEvent("MODIFIED", w.item())
	w.mu.Unlock()
	for _, watch := range watches {
		_, _ = io.WriteString(watch, event) // or the feed has left it
	}
}

// writeLate changes the object, and tells feeds later, unless something else has happened to it by
// then.
func (w *modelWorld) writeLate() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.revision++
	written, past := w.revision, w.epochs.Past
	time.AfterFunc(rand.N(4*time.Second), func() {
		w.mu.Lock()
		last := w.revision == written && w.epochs.Past == past
		w.mu.Unlock()
		if last {
			w.write(0)
		}
	})
}

// deafen makes nothing be told of what is at a path.
func (w *modelWorld) deafen(path string) {
	if w.deaf[path].IsZero() {
		w.Silence(path, true)
		w.Stall(path)
		w.deaf[path] = time.Now()
	}
}

// hear ends that nothing is told, and waits until what was away is listed again: a change from before is
// not heard of for as long.
func (w *modelWorld) answered() {
	for path := range w.deaf {
		w.Silence(path, false)
		w.Flow(path)
	}
	clear(w.deaf)
	time.Sleep(6 * time.Second)
	synctest.Wait()
}

// newModelWorld returns a world in a bubble, and makes a Handler before it. Every list waits for its
// review, and for the room of its body.
func newModelWorld(t *testing.T, change ...func(*snapshot.Config)) *modelWorld {
	t.Helper()
	w := startModelWorld(t, change...)
	synctest.Wait()
	return w
}

// startModelWorld is newModelWorld where time is real.
func startModelWorld(t testing.TB, change ...func(*snapshot.Config)) *modelWorld {
	t.Helper()
	w := &modelWorld{FakeAPI: proxytest.NewFakeAPI(), revision: 100, reviews: make(chan struct{}), deaf: map[string]time.Time{}}
	w.Collections[modelServices] = &proxytest.FakeCollection{Kind: "APIServiceList", Objects: []string{w.service(false)}}
	w.Collections[modelDefinitions] = &proxytest.FakeCollection{
		Kind: "CustomResourceDefinitionList", APIVersion: "apiextensions.k8s.io/v1", Objects: []string{w.definition()},
	}
	w.Collections[modelLeases] = &proxytest.FakeCollection{Kind: "LeaseList", APIVersion: "coordination.k8s.io/v1", Objects: []string{w.lease()}}
	w.Document("/apis/example.com/v1", `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"example.com/v1","resources":[`+
		`{"name":"widgets","kind":"Widget","namespaced":true,"verbs":["list","watch"]}]}`)
	w.Document("/version", proxytest.VersionOf("v1.36.3"))
	var served *cluster.Cluster
	config := snapshot.Config{
		Client: &http.Client{Transport: proxytest.Transport(w.feed)},
		Base:   &url.URL{Scheme: "https", Host: "upstream.example"},
		Limits: snapshot.Limits{History: time.Hour, Staleness: modelStaleness, Wait: 100 * time.Millisecond},
		Fields: func(ctx context.Context, gvr schema.GroupVersionResource) ([]wire.Field, error) {
			return served.Fields(ctx, gvr)
		},
		Settings: func(schema.GroupVersionResource) snapshot.Settings { return snapshot.Settings{Watches: true} },
		Log:      proxytest.DiscardLog(),
	}
	for _, of := range change {
		of(&config)
	}
	collections := snapshot.NewCollections(config)
	served, err := cluster.New(w.Config(), cluster.Config{
		Invalidate: collections.Invalidate, Verify: collections.Verify, Log: proxytest.DiscardLog(),
	})
	expect.NoError(t, err)
	bounds, err := limits.New(limits.Config{Requests: 10, Bytes: 10_000, Wait: 24 * time.Hour})
	expect.NoError(t, err)
	reviews, err := authz.NewAuthorizer(authntest.SendAs(w.review), &url.URL{Scheme: "https", Host: "upstream.example"},
		authz.Config{TTL: 24 * time.Hour, Timeout: 24 * time.Hour}, proxytest.DiscardLog())
	expect.NoError(t, err)
	w.handler = &Handler{
		Policy: policy.DefaultConfig().With(policy.Switches{Consistent: policy.ConsistentAlways, Watches: true}),

		ConsistentWait: 3 * time.Second,

		Cluster:     served,
		Authorizer:  reviews,
		Collections: collections,
		Limits:      bounds,
		Observer:    observetest.Unread(),
		Log:         proxytest.DiscardLog(),
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { served.Run(ctx) })
	t.Cleanup(func() {
		stop()
		if len(w.deaf) > 0 {
			w.answered()
		}
		running.Wait()
		collections.Close()
	})
	return w
}

// ask sends a list or a streaming list, while which things happen, and returns whether it was
// answered from memory.
func (w *modelWorld) ask(t *testing.T, target string) (why reason.Reason) {
	var happened []string
	some := func() {
		synctest.Wait()
		for range rand.IntN(3) {
			happened = append(happened, w.step())
			synctest.Wait()
		}
	}
	w.handler.Authorizer.Flush() // each request has a review of its own
	if rand.IntN(4) == 0 {
		w.writeLate()
	}
	w.mu.Lock()
	came, before := w.revision, w.epochs.Past
	w.mu.Unlock()
	who := w.caller(t)
	release := takeRoom(t, w.handler.Limits, 10_000)
	out := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	r.Header.Set("Authorization", "Bearer a")
	r.Header.Set("Accept", "application/json")
	done := make(chan reason.Reason, 1)
	go func() {
		list, found, why := w.handler.decide(r, who)
		if why == reason.None {
			why = serveWhole(w.handler, out, r, who, list, &found)
		}
		done <- why
	}()
	some()
	end := make(chan struct{})
	var reviewing sync.WaitGroup
	reviewing.Go(func() { // a review that a flush has overtaken is sent again
		for {
			select {
			case w.reviews <- struct{}{}:
			case <-end:
				return
			}
		}
	})
	some()
	w.mu.Lock()
	if w.away || w.failing {
		w.doubtful = time.Now().Add(modelVerify)
	}
	is, loaded, doubtful := w.epochs, w.loaded, w.doubtful
	silent, deaf := w.away && time.Since(w.since) > modelStaleness, ""
	for path, since := range w.deaf {
		if time.Since(since) >= modelSilence {
			deaf = path
		}
	}
	w.mu.Unlock()
	release() // the last wait is over
	why = <-done
	close(end)
	reviewing.Wait()
	if why != "" {
		return why
	}
	var found modelEpochs
	_, said, _ := strings.Cut(out.Body.String(), `"spec":"`)
	if _, err := fmt.Sscanf(said, "{Definition:%d Servers:%d Catalog:%d Checked:%d Past:%d}",
		&found.Definition, &found.Servers, &found.Catalog, &found.Checked, &found.Past); err != nil {
		t.Fatalf("answered with %s: %v", out.Body, err)
	}
	past := found.Past >= loaded
	answers := found.Past
	if time.Now().Before(doubtful) {
		found.Servers = is.Servers
	}
	if found.Past = is.Past; found != is || !past {
		t.Errorf("after %q: answered with %s, and by then it was %+v, in a feed %d", happened, said, is, loaded)
	}
	query := r.URL.Query()
	newest := query.Get("resourceVersionMatch") != "Exact"
	if newest && silent {
		t.Errorf("after %q: the newest state is older than %v", happened, modelStaleness)
	}
	if at := revisionOf(out.Body.String()); isProven(query) && answers == before && at < came {
		t.Errorf("after %q: answered at revision %d, which is older than the request, %d", happened, at, came)
	}
	if deaf != "" {
		t.Errorf("after %q: answered though no change of %s would have been heard of", happened, deaf)
	}
	if w.reviewed != w.rights {
		t.Errorf("after %q: answered by a right from before it was taken away", happened)
	}
	return ""
}

// query asks for the newest state, with a proof or without, or for a state that was there.
func (w *modelWorld) query() url.Values {
	query := url.Values{}
	switch at := w.handler.Collections.Stats(); rand.IntN(5) {
	case 0:
		if len(at) > 0 && at[0].To > 0 {
			query.Set("resourceVersionMatch", "Exact")
			query.Set("resourceVersion", strconv.FormatUint(at[0].To, 10))
		}
	case 1:
		query.Set("resourceVersion", "0")
	case 2:
		query = url.Values{"watch": {"true"}, "timeoutSeconds": {"1"}, "resourceVersion": {"0"}}
	case 3:
		query = url.Values{
			"watch": {"true"}, "timeoutSeconds": {"1"}, "sendInitialEvents": {"true"}, "resourceVersionMatch": {"NotOlderThan"},
			"allowWatchBookmarks": {"true"},
		}
	}
	return query
}

// isProven reports whether a query names no revision, so that an answer must hold all that was written
// before it came.
func isProven(query url.Values) bool { return !query.Has("resourceVersion") }

// revisionOf is the highest revision that an answer names: a list's own, or that of the bookmark at
// the end of the initial events.
func revisionOf(answer string) (revision int) {
	for _, found := range modelRevision.FindAllStringSubmatch(answer, -1) {
		at, _ := strconv.Atoi(found[1])
		revision = max(revision, at)
	}
	return revision
}

var modelRevision = regexp.MustCompile(`"resourceVersion":"(\d+)"`)

// TestDecisionModel: definitions, API servers, servers of the group, rights and the past change,
// self-checks find something wrong, and streams fall silent, at random, before requests and while
// these wait. Nothing is answered under an epoch that had ended before the last wait was over.
func TestDecisionModel(t *testing.T) {
	answered, streamed, proven, forwarded := 0, 0, 0, map[reason.Reason]int{}
	for range 40 {
		synctest.Test(t, func(t *testing.T) {
			w := newModelWorld(t)
			for range 40 {
				w.mu.Lock()
				w.away = w.away && rand.IntN(3) > 0
				w.failing = w.failing && rand.IntN(3) > 0
				w.mu.Unlock()
				if rand.IntN(3) > 0 {
					w.answered()
				}
				time.Sleep(time.Duration(rand.IntN(80)) * time.Second) // it may settle, and load
				query := w.query()
				if why := w.ask(t, "/apis/example.com/v1/widgets?"+query.Encode()); why == "" {
					answered++
					if query.Has("watch") {
						streamed++
					}
					if isProven(query) {
						proven++
					}
				} else {
					forwarded[why]++
				}
				if t.Failed() {
					return
				}
			}
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d were answered, %d of them with a streaming list, %d after a proof; forwarded: %v", answered, streamed, proven, forwarded)
	if answered < 40 || streamed < 10 || proven < 20 {
		t.Error("these are too few")
	}
}
