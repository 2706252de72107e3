package forwarding

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/events"
	"github.com/listproxy/listproxy/test/harness/hop"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/harness/soak"
)

// isSince reports whether the API server is of a version, as "1.37", or newer.
func isSince(wanted string) bool {
	return version.MustParseGeneric(cp.Version()).AtLeast(version.MustParseGeneric(wanted))
}

// TestCompressedStreamingList follows a streaming list that takes gzip, with objects being made all
// the time, until listproxy ends. What came are bytes that the API server has sent, and the end is
// between two of its events. The API server compresses such lists from 1.37 on.
func TestCompressedStreamingList(t *testing.T) {
	harness.Long(t)
	encoding := ""
	if isSince("1.37") {
		encoding = "gzip"
	}
	for name, test := range map[string]struct{ proto, accept string }{
		"JSON over HTTP/1.1":   {http1, ask.JSON},
		"protobuf over HTTP/2": {http2, asProtobuf},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := startRecorder(t, func(r *http.Request) bool { return r.URL.Query().Has("recorded") })
			p := startProcess(t, harness.ProxyOptions{Upstream: recorder.hop.RESTConfig(cp.RESTConfig(controlplane.Feed))})
			d := doorOf(t, throughProxy(p))

			ns := newNamespace(t)
			for i := range 30 {
				newConfigMap(t, ns, fmt.Sprint("old-", i), map[string]string{"long": strings.Repeat("kubernetes ", 100*i)})
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			path := "/api/v1/namespaces/" + ns + "/configmaps?" + ask.StreamingList
			header := accept(test.accept)
			header.Set("Accept-Encoding", "gzip")
			straight := direct.send(ctx, t, call{proto: test.proto, path: path, header: header})
			if got := straight.Header.Get("Content-Encoding"); got != encoding {
				t.Fatalf("kube-apiserver %s encodes with %q", cp.Version(), got)
			}
			res := d.send(ctx, t, call{proto: test.proto, path: path + "&recorded=1", header: header})
			for _, name := range []string{"Content-Encoding", "Content-Type", "Vary"} {
				if got, want := res.Header.Get(name), straight.Header.Get(name); got != want {
					t.Errorf("%s is %q, not %q", name, got, want)
				}
			}
			_ = straight.Body.Close()

			made, over := make(chan struct{}), make(chan struct{})
			var all sync.WaitGroup
			all.Go(func() {
				for i := 0; ; i++ {
					newConfigMap(t, ns, fmt.Sprint("new-", i), nil)
					if i == 20 {
						close(made)
					}
					select {
					case <-over:
						return
					default:
					}
				}
			})
			all.Go(func() {
				defer close(over)
				await(t, "objects were made", made)
				if err := p.Stop(); err != nil {
					t.Error(err)
				}
			})
			got, err := io.ReadAll(res.Body)
			all.Wait()
			if err != nil {
				t.Errorf("the watch did not end in order: %v", err)
			}
			if !bytes.HasPrefix(recorder.sent(), got) {
				t.Errorf("%d bytes came that are not those that were sent", len(got))
			}
			wantEvents(t, encoding, test.accept, got)
		})
	}
}

// TestCompressedLoad: of a state that the API server sends to a feed with gzip, listproxy counts the
// events, and the bytes as they were before.
func TestCompressedLoad(t *testing.T) {
	harness.Long(t)
	ns := newNamespace(t)
	for i := range 30 {
		newConfigMap(t, ns, fmt.Sprint("loaded-", i), map[string]string{"long": strings.Repeat("kubernetes ", 1000)})
	}
	recorder := startRecorder(t, func(r *http.Request) bool {
		query := r.URL.Query()
		return r.URL.Path == "/api/v1/configmaps" && query.Get("watch") == "true" && !query.Has("fieldSelector")
	})
	p := startProcess(t, harness.ProxyOptions{
		Upstream: recorder.hop.RESTConfig(cp.RESTConfig(controlplane.Feed)), Args: []string{"--eager", "configmaps"},
	})
	newConfigMap(t, ns, "later", nil)
	counted := func(name string) int {
		n, _, err := soak.Sum(t.Context(), http.DefaultClient, p.AdminURL()+"/metrics", name, map[string]string{"resource": "configmaps"})
		expect.NoError(t, err)
		return int(n)
	}
	poll.Until(t, patience, "all events that were sent are counted", func() bool {
		sent := recorder.sent()
		if compressed := bytes.HasPrefix(sent, []byte("\x1f\x8b")); compressed != isSince("1.37") {
			t.Fatalf("kube-apiserver %s compresses: %t", cp.Version(), compressed)
		}
		plain := sent
		if isSince("1.37") {
			plain, _ = io.ReadAll(events.Unzip(bytes.NewReader(sent))) // up to the last whole member
		}
		return bytes.Contains(plain, []byte(`"name":"later"`)) && counted("listproxy_feed_events_total") == bytes.Count(plain, []byte("\n"))
	})
	if all := counted("listproxy_feed_received_bytes_total"); all < 30*11_000 {
		t.Errorf("%d bytes are counted: those of gzip", all)
	}
}

// wantEvents requires that a streaming list has its bookmark and events behind it, and is whole.
func wantEvents(t *testing.T, encoding, contentType string, body []byte) {
	t.Helper()
	var from io.Reader = bytes.NewReader(body)
	if encoding == "gzip" {
		from = events.Unzip(from)
	}
	all, initial := 0, -1
	for in := events.NewReader(from, contentType); ; {
		event, err := in.Frame()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("behind %d events: %q, %v", all, event, err)
		}
		all++
		if bytes.Contains(event, []byte(metav1.InitialEventsAnnotationKey)) {
			initial = all
		}
	}
	if initial < 0 || all < initial+10 {
		t.Errorf("%d events, the bookmark is number %d", all, initial)
	}
}

// recorder is a hop that keeps the bytes of an answer of the API server.
type recorder struct {
	hop *hop.Hop

	mu   sync.Mutex
	body bytes.Buffer
}

// startRecorder starts one that keeps the answers to some requests.
func startRecorder(t *testing.T, is func(*http.Request) bool) *recorder {
	t.Helper()
	h := hop.Run(t, cp.URL(), cp.CA())
	base, err := url.Parse(cp.URL())
	expect.NoError(t, err)
	r := &recorder{hop: h}
	untouched := &httputil.ReverseProxy{
		Rewrite:       func(pr *httputil.ProxyRequest) { pr.SetURL(base) },
		Transport:     direct.clients[http2].Transport,
		FlushInterval: -1,
	}
	h.OnRequest(func(w http.ResponseWriter, request *http.Request) bool {
		if !is(request) {
			return false
		}
		untouched.ServeHTTP(recorded{w, r}, request)
		return true
	})
	return r
}

// sent is what has come so far.
func (r *recorder) sent() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Clone(r.body.Bytes())
}

// recorded keeps what is written to it.
type recorded struct {
	http.ResponseWriter
	by *recorder
}

func (w recorded) Write(p []byte) (int, error) {
	w.by.mu.Lock()
	w.by.body.Write(p)
	w.by.mu.Unlock()
	return w.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController flush.
func (w recorded) Unwrap() http.ResponseWriter { return w.ResponseWriter }
