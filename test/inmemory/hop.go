package inmemory

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/expect"
)

// Hop is a transport between a client and a control plane. Tests make it do what no API server does, or what one does rarely: it
// answers requests itself, holds them back, and sends lines into watches or ends them. It counts requests. Its methods are safe
// for concurrent use. Those of the control plane are there, too: what a test writes reaches watches by itself.
type Hop struct {
	*ControlPlane
	to http.RoundTripper

	mu        sync.Mutex // guards the following fields
	intercept Intercept
	status    map[string]int           // of answers in place of the servers', by "verb path"
	stalls    map[string]chan struct{} // lists and reads wait until the channel of their path is closed
	requests  map[string]int           // the number of requests, by "verb path"
	watched   map[string][]string      // the resourceVersions of watches, by path
	watches   map[string][]*hopWatch   // by path
	silent    map[string]bool          // the paths whose watches have no bookmarks of the servers
}

// Intercept returns the time for which the answer to a request is held back, and an answer in place of the servers'. If the
// answer is nil, the servers answer. It is called for one request after another.
type Intercept func(r *http.Request) (hold time.Duration, instead *http.Response)

// NewHop returns a hop to a control plane, in a bubble. It has the credentials of Own. When the test ends, the hop stops all
// servers.
func NewHop(t testing.TB, plane *ControlPlane) *Hop {
	t.Helper()
	client, err := rest.HTTPClientFor(plane.Config())
	expect.NoError(t, err)
	t.Cleanup(func() {
		for _, server := range plane.Servers() {
			server.Stop()
		}
		client.CloseIdleConnections()
		time.Sleep(time.Hour) // requests that are on their way end
	})
	return &Hop{
		ControlPlane: plane, to: client.Transport, status: map[string]int{}, stalls: map[string]chan struct{}{},
		requests: map[string]int{}, watched: map[string][]string{}, watches: map[string][]*hopWatch{}, silent: map[string]bool{},
	}
}

// Config returns a client's configuration.
func (h *Hop) Config() *rest.Config {
	return &rest.Config{Host: "https://upstream", Transport: h}
}

// RoundTrip implements [http.RoundTripper].
func (h *Hop) RoundTrip(r *http.Request) (*http.Response, error) {
	path, verb := r.URL.Path, h.verb(r)
	h.mu.Lock()
	h.requests[verb+" "+path]++
	if verb == "watch" {
		h.watched[path] = append(h.watched[path], r.URL.Query().Get("resourceVersion"))
	}
	stallEnds, status := h.stalls[path], h.status[verb+" "+path]
	hold, instead := time.Duration(0), (*http.Response)(nil)
	if h.intercept != nil {
		hold, instead = h.intercept(r)
	}
	h.mu.Unlock()
	if stallEnds != nil && verb != "watch" {
		select {
		case <-stallEnds:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	if hold > 0 {
		select {
		case <-time.After(hold):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	switch {
	case instead != nil:
		return instead, nil
	case status != 0:
		return Answer(r, status, StatusOf(status, "")+"\n"), nil
	}
	onward := r.Clone(r.Context())
	onward.Close = false // the hop has its own connections, which it keeps: a handshake takes long
	answer, err := h.to.RoundTrip(onward)
	if err == nil && verb == "watch" && answer.StatusCode == http.StatusOK {
		h.follow(path, answer)
	}
	return answer, err
}

// verb returns the verb by which requests are counted: list, watch or get.
func (h *Hop) verb(r *http.Request) string {
	if r.URL.Query().Get("watch") != "" {
		return "watch"
	}
	for _, kind := range h.kinds() {
		if _, ok := namespaceOf(r.URL.Path, kind); ok {
			return "list"
		}
	}
	return "get"
}

// Answer returns a response in JSON.
func Answer(r *http.Request, status int, body string) *http.Response {
	return &http.Response{
		StatusCode: status,
		Header:     http.Header{"Content-Type": {"application/json"}},
		Body:       io.NopCloser(strings.NewReader(body)),
		Request:    r,
	}
}

// hopWatch is a watch that passes a hop.
type hopWatch struct {
	sending sync.Mutex // held while a line is sent
	out     *io.PipeWriter
}

// send sends a whole line. It does nothing once the watch has ended.
func (w *hopWatch) send(line []byte) {
	w.sending.Lock()
	defer w.sending.Unlock()
	_, _ = w.out.Write(line)
}

// follow makes the answer to a watch pass the hop, line by line.
func (h *Hop) follow(path string, answer *http.Response) {
	in, out := io.Pipe()
	body, watch := answer.Body, &hopWatch{out: out}
	answer.Body = in
	h.mu.Lock()
	h.watches[path] = append(h.watches[path], watch)
	h.mu.Unlock()
	go func() {
		defer func() { _ = body.Close() }()
		for lines := bufio.NewReader(body); ; {
			line, err := lines.ReadBytes('\n')
			if h.passes(path, line) {
				watch.send(line)
			}
			if err != nil {
				_ = out.CloseWithError(err)
				return
			}
		}
	}()
}

// passes reports whether a line of a watch is sent on.
func (h *Hop) passes(path string, line []byte) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.silent[path] || !bytes.HasPrefix(line, []byte(`{"type":"BOOKMARK"`)) || bytes.Contains(line, []byte("initial-events-end"))
}

// Send sends a line to all watches of path.
func (h *Hop) Send(path, line string) {
	h.mu.Lock()
	watches := h.watches[path]
	h.mu.Unlock()
	for _, watch := range watches {
		watch.send([]byte(line))
	}
}

// Cut breaks off all watches of path.
func (h *Hop) Cut(path string) { h.endWatches(path, io.ErrUnexpectedEOF) }

// End ends all watches of path in order, as at their timeout.
func (h *Hop) End(path string) { h.endWatches(path, io.EOF) }

// endWatches ends all watches of path with an error.
func (h *Hop) endWatches(path string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, watch := range h.watches[path] {
		_ = watch.out.CloseWithError(err)
	}
	delete(h.watches, path)
}

// Silence keeps back the bookmarks of the servers in watches of path, except the one that ends a streaming list.
func (h *Hop) Silence(path string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.silent[path] = true
}

// Stall holds back answers to lists and reads of path, until Unstall.
func (h *Hop) Stall(path string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stalls[path] = make(chan struct{})
}

// Unstall ends Stall.
func (h *Hop) Unstall(path string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.stalls[path])
	delete(h.stalls, path)
}

// SetIntercept makes intercept see all requests from now on; nil: none.
func (h *Hop) SetIntercept(intercept Intercept) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.intercept = intercept
}

// SetStatus makes the hop answer each "verb path" with an error of this code; 0: the servers answer.
func (h *Hop) SetStatus(status int, verbPaths ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, verbPath := range verbPaths {
		h.status[verbPath] = status
	}
}

// Requests returns the number of requests for "verb path".
func (h *Hop) Requests(verbPath string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.requests[verbPath]
}

// AllRequests returns the number of all requests.
func (h *Hop) AllRequests() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, requests := range h.requests {
		n += requests
	}
	return n
}

// Watched returns the resourceVersions of all watches of path so far.
func (h *Hop) Watched(path string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string{}, h.watched[path]...)
}
