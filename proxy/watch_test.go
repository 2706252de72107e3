package proxy

import (
	stdgzip "compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/authn"
	"github.com/listproxy/listproxy/proxy/inflight"
	"github.com/listproxy/listproxy/proxy/internal/authntest"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/snapshot/gzip"
	"github.com/listproxy/listproxy/snapshot/watch"
)

// now stands for the newest revision in a query.
const now = "NOW"

// serveWatch answers a watch until it ends.
func serveWatch(h *Handler, w http.ResponseWriter, r *http.Request, who caller, list policy.Request, a *answer) reason.Reason {
	s, why := h.beginWatch(w, r, who, list, a)
	if s != nil {
		s.serve()
	}
	return why
}

// watch sends a watch, changes the object while it lasts, and returns what was answered.
func (w *modelWorld) watch(t *testing.T, query string, header http.Header) (*httptest.ResponseRecorder, reason.Reason) {
	t.Helper()
	identity := authntest.Identify(authntest.New(t), "Bearer a")
	who := caller{identity: identity, accepted: true, share: authn.ShareKey(identity, true, "")}
	query = strings.Replace(query, now, strconv.Itoa(w.revision), 1)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/apis/example.com/v1/widgets?"+query, nil)
	r.Header = header.Clone()
	r.Header.Set("Authorization", "Bearer a")
	r.Header.Set("Accept", "application/json")
	out, done := httptest.NewRecorder(), make(chan reason.Reason, 1)
	go func() {
		list, found, why := w.handler.decide(r, who)
		if why == "" {
			why = serveWatch(w.handler, out, r, who, list, &found)
		}
		done <- why
	}()
	synctest.Wait()
	w.write(1)
	return out, <-done
}

// TestCompressedWatch: a watch comes with gzip exactly if the upstream would send it so: it
// compresses streaming lists, the client takes gzip, and wants the state and bookmarks.
func TestCompressedWatch(t *testing.T) {
	const streaming = "watch=true&timeoutSeconds=2&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0"
	for name, tt := range map[string]struct {
		upstream bool
		encoding string
		query    string
		want     bool
	}{
		"streaming":            {true, "gzip", streaming + "&allowWatchBookmarks=true", true},
		"taken for streaming":  {true, "br, gzip", "watch=true&timeoutSeconds=2&resourceVersion=0&allowWatchBookmarks=true", true},
		"by an older upstream": {false, "gzip", streaming + "&allowWatchBookmarks=true", false},
		"without bookmarks":    {true, "gzip", streaming, false},
		"not the state":        {true, "gzip", "watch=true&timeoutSeconds=2&resourceVersion=" + now + "&allowWatchBookmarks=true", false},
		"no gzip":              {true, "identity", streaming + "&allowWatchBookmarks=true", false},
		"another spelling":     {true, "gzip;q=1", streaming + "&allowWatchBookmarks=true", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newModelWorld(t)
				w.compresses = tt.upstream
				compressor, err := gzip.NewCompressor(0)
				if err != nil {
					t.Fatal(err)
				}
				w.handler.Compressor = compressor
				end := make(chan struct{})
				defer close(end)
				go func() {
					for {
						select {
						case w.reviews <- struct{}{}:
						case <-end:
							return
						}
					}
				}()
				plain, why := w.watch(t, tt.query, http.Header{})
				for range 20 { // it is loaded meanwhile
					if why == "" {
						break
					}
					time.Sleep(20 * time.Second)
					plain, why = w.watch(t, tt.query, http.Header{})
				}
				if why != "" {
					t.Fatalf("forwarded: %s", why)
				}
				got, why := w.watch(t, tt.query, http.Header{"Accept-Encoding": {tt.encoding}})
				if why != "" {
					t.Fatalf("forwarded: %s", why)
				}
				body := io.Reader(got.Body)
				header := [2]string{got.Header().Get("Content-Encoding"), got.Header().Get("Vary")}
				wantHeader := [2]string{}
				if tt.want {
					wantHeader = [2]string{"gzip", "Accept-Encoding"}
					if body, err = stdgzip.NewReader(got.Body); err != nil {
						t.Fatal(err)
					}
				}
				if diff := cmp.Diff(wantHeader, header); diff != "" {
					t.Errorf("the header (-want +got):\n%s", diff)
				}
				read, err := io.ReadAll(body)
				if err != nil {
					t.Fatal(err)
				}
				// Each watch has seen one change.
				revision := regexp.MustCompile(`"resourceVersion":"\d+"`)
				want := revision.ReplaceAllString(plain.Body.String(), "")
				if diff := cmp.Diff(want, revision.ReplaceAllString(string(read), "")); diff != "" || len(read) == 0 {
					t.Errorf("(-plain +got):\n%s", diff)
				}
			})
		})
	}
}

// TestWatchWithoutState: a watch that begins with no state needs no room among the bytes that are
// being written, whoever holds all of it.
func TestWatchWithoutState(t *testing.T) {
	bounds, err := inflight.New(inflight.Config{Bytes: 10})
	if err != nil {
		t.Fatal(err)
	}
	defer takeRoom(t, bounds, 10)()
	h := &Handler{Inflight: bounds}
	page, room, err := h.admitBody(t.Context(), inflight.ShareKey{}, answer{watch: true}, 0)
	if err != nil {
		t.Fatal(err)
	}
	page.release()
	room.Release()
	if _, _, err := h.admitBody(t.Context(), inflight.ShareKey{}, listOf(1, 1), 0); err == nil {
		t.Error("there was room for a list")
	}
}

// TestStreamingListWaitsForTheProof: a streaming list waits longer for the proof than a list does.
// Forwarding it would cost the upstream more.
func TestStreamingListWaitsForTheProof(t *testing.T) {
	for query, want := range map[string]reason.Reason{
		"watch=true&timeoutSeconds=20&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true": "",
		"": reason.NotProven,
	} {
		t.Run(query, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newModelWorld(t)
				w.handler.ConsistentWait = 1500 * time.Millisecond
				w.probeTakes = 6 * time.Second
				w.load(t)
				o := w.open(t, httptest.NewRecorder(), query, "")
				defer o.leave()
				time.Sleep(time.Minute)
				synctest.Wait()
				if diff := cmp.Diff(want, o.why); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestTimeoutBeginsWithTheRequest: what a watch has waited for is part of its timeout.
func TestTimeoutBeginsWithTheRequest(t *testing.T) {
	const streaming = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	for name, tt := range map[string]struct {
		query       string
		proof, want time.Duration
	}{
		"a watch":                             {"watch=true&timeoutSeconds=20&resourceVersion=" + now, 0, 20 * time.Second},
		"a streaming list":                    {streaming + "&timeoutSeconds=20", 0, 20 * time.Second},
		"one that waited":                     {streaming + "&timeoutSeconds=20", 6 * time.Second, 20 * time.Second},
		"one that waited longer than it asks": {streaming + "&timeoutSeconds=4", 6 * time.Second, 6*time.Second + time.Nanosecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newModelWorld(t)
				var err error
				if w.handler.Observer, err = observe.New(nil, noop.NewMeterProvider()); err != nil {
					t.Fatal(err)
				}
				w.probeTakes = tt.proof
				w.load(t)
				o := w.open(t, httptest.NewRecorder(), tt.query, "")
				defer o.leave()
				if end := o.end(t, time.Minute); end != watch.EndTimeout || o.ended != tt.want {
					t.Errorf("it ended after %v: %q", o.ended, end)
				}
			})
		})
	}
}

// TestStreamingListOfAColdResource: the first streaming list of a resource waits until it is loaded,
// since the upstream would have the watch for minutes if it were forwarded. If that takes too long, it
// is forwarded, and so are all that follow. No other request waits. It is the same where the state is
// lost, and loaded again.
func TestStreamingListOfAColdResource(t *testing.T) {
	const streaming = "watch=true&timeoutSeconds=600&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	cold := []reason.Reason{reason.Warming}
	for name, tt := range map[string]struct {
		query string
		away  bool            // the resource cannot be loaded
		takes time.Duration   // a probe does
		lost  bool            // the resource was loaded, and its state is lost
		loses time.Duration   // when its state is lost after the request, if it is then
		again time.Duration   // when it can be loaded again, after it was lost
		leave time.Duration   // when the client leaves, if it does
		want  []reason.Reason // of one request after the other
		after time.Duration   // when the first is answered or forwarded, at the latest
	}{
		"of any state":         {query: streaming + "&resourceVersion=0", want: []reason.Reason{""}, after: 2 * time.Second},
		"of the newest state":  {query: streaming, want: []reason.Reason{""}, after: 4 * time.Second},
		"loaded too late":      {query: streaming, away: true, want: []reason.Reason{reason.Warming, reason.Warming}, after: WatchProofWait},
		"the client leaves":    {query: streaming, away: true, leave: 3 * time.Second, want: cold, after: 3 * time.Second},
		"a watch, not a state": {query: "watch=true&resourceVersion=" + now, want: cold},
		"a list":               {query: "resourceVersion=0", want: cold},

		// Two probes belong to the load, which is the proof: another probe would come too late.
		"with slow probes": {query: streaming, takes: 4 * time.Second, want: []reason.Reason{""}, after: 9 * time.Second},

		"lost":                          {query: streaming + "&resourceVersion=0", lost: true, again: 2 * time.Second, want: []reason.Reason{""}, after: 8 * time.Second},
		"lost, of the newest state":     {query: streaming, lost: true, again: 2 * time.Second, want: []reason.Reason{""}, after: 8 * time.Second},
		"lost for too long":             {query: streaming, lost: true, again: time.Hour, want: []reason.Reason{reason.Warming, reason.Warming}, after: WatchProofWait},
		"lost, and a list":              {query: "resourceVersion=0", lost: true, again: time.Hour, want: cold},
		"lost while the proof is asked": {query: streaming, takes: time.Second, loses: 500 * time.Millisecond, again: time.Second, want: []reason.Reason{""}, after: 8 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newModelWorld(t)
				w.answerReviews(t)
				w.away, w.probeTakes = tt.away, tt.takes
				lose := func() {
					w.cut(func() { w.over, w.failing = true, true })
					time.AfterFunc(tt.again, func() { w.cut(func() { w.failing = false }) })
				}
				if tt.lost || tt.loses > 0 {
					w.load(t)
				}
				time.Sleep(time.Minute) // all but the resource is known
				switch {
				case tt.lost:
					lose()
					synctest.Wait()
				case tt.loses > 0:
					time.AfterFunc(tt.loses, lose)
				}
				for i, want := range tt.want {
					out := &told{ResponseRecorder: httptest.NewRecorder()}
					o := w.open(t, out, tt.query, "")
					defer o.leave()
					if tt.leave > 0 {
						time.AfterFunc(tt.leave, o.leave)
					}
					time.Sleep(tt.after)
					synctest.Wait()
					if text := out.String(); strings.Contains(text, "initial-events-end") != (want == "") {
						t.Fatalf("request %d: told %q", i, text)
					}
					if want == "" {
						continue // it goes on
					}
					after := tt.after
					if i > 0 {
						after = 0
					}
					if ended := <-o.done; o.why != want || ended != after {
						t.Errorf("request %d: forwarded after %v: %q", i, ended, o.why)
					}
				}
			})
		})
	}
}
