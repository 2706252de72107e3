package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness/hop"
)

const (
	// batchEvery is how often generated changes are sent.
	batchEvery = 10 * time.Millisecond
	// bookmarkEvery is kube-apiserver's own time between bookmarks of a quiet watch, about.
	bookmarkEvery = time.Second
	// perLabel and perNode are how many objects share a label's value and a node.
	perLabel, perNode = 100, 30
	// textSpread is over how many bytes the beginnings of what fills objects up are spread.
	textSpread = 64 << 10
)

// replay answers lists and watches of pods in a real API server's place: there may be more of them,
// and more changes, than a machine can bear that has etcd on it as well. Objects are made when they
// are sent, so nothing here grows with them but a revision each. All else is the real API server's
// business. It speaks JSON, and just what a feed asks.
type replay struct {
	hop  *hop.Hop
	life context.Context
	// text is what objects are filled up with, each with another part of so many bytes.
	text    string
	padding int

	mu        sync.Mutex
	revisions []uint64      // of the i-th object
	latest    uint64        // revision
	log       []int         // which object changed at first+i
	first     uint64        // revision
	more      chan struct{} // closed and made anew with every batch
}

// startReplay puts a replay with n pods of so many bytes each before a control plane.
func startReplay(ctx context.Context, cp *controlplane.ControlPlane, n, size int) (*replay, error) {
	h, err := hop.Start(cp.URL(), cp.CA())
	if err != nil {
		return nil, err
	}
	const start = 1_000_000
	r := &replay{hop: h, life: ctx, revisions: make([]uint64, n), more: make(chan struct{})}
	for i := range r.revisions {
		r.revisions[i] = start + uint64(i)
	}
	r.latest = start + uint64(n)
	r.first = r.latest + 1
	r.padding = max(0, size-len(r.appendPod(nil, 0, start, false)))
	r.text = words(r.padding + textSpread)
	h.OnRequest(r.answer)
	return r, nil
}

// words returns n bytes of text that compresses about as the objects of a cluster do.
func words(n int) string {
	vocabulary := strings.Fields("app kubernetes io managed-by helm deployment registry example com sidecar proxy config " +
		"volume mount secret token http port name value true false 8080 readiness liveness path healthz requests limits " +
		"memory cpu 250m 512Mi fieldsType FieldsV1 f:metadata f:labels f:spec f:containers f:status k:type lastTransitionTime")
	random := rand.New(rand.NewPCG(1, 2))
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(vocabulary[random.IntN(len(vocabulary))])
		b.WriteByte(' ')
	}
	return b.String()[:n]
}

func podName(i int) string { return fmt.Sprintf("pod-%08d", i) }

// appendPod appends the i-th pod as it is in a list or in an event.
func (r *replay) appendPod(b []byte, i int, revision uint64, inEvent bool) []byte {
	b = append(b, '{')
	if inEvent {
		b = append(b, `"kind":"Pod","apiVersion":"v1",`...)
	}
	from := i * 131 % textSpread
	padding := ""
	if r.text != "" {
		padding = r.text[from : from+r.padding]
	}
	return fmt.Appendf(b, `"metadata":{"name":"%s","namespace":"default","uid":"00000000-0000-4000-8000-%012d",`+
		`"resourceVersion":"%d","creationTimestamp":"2026-01-01T00:00:00Z","labels":{"app":"app-%d","group":"g-%d"},`+
		`"annotations":{"padding":"%s"}},"spec":{"containers":[{"name":"app","image":"app:stable","resources":{}}],`+
		`"nodeName":"node-%d"},"status":{"phase":"Running"}}`,
		podName(i), i, revision, i%12, i/perLabel, padding, i/perNode)
}

// change makes n changes, to objects in turn.
func (r *replay) change(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for range n {
		// A prime far from any size spreads them.
		i := int(r.latest * 7919 % uint64(len(r.revisions)))
		r.latest++
		r.revisions[i] = r.latest
		r.log = append(r.log, i)
	}
	close(r.more)
	r.more = make(chan struct{})
}

// run makes changes at a rate until ctx ends.
func (r *replay) run(ctx context.Context, perSecond int) {
	begun, made := time.Now(), 0
	wait.UntilWithContext(ctx, func(context.Context) {
		due := int(time.Since(begun).Seconds() * float64(perSecond))
		if due > made {
			r.change(due - made)
			made = due
		}
	}, batchEvery)
}

func (r *replay) revision() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.latest
}

// answer answers what is about pods; hop asks the API server for the rest.
func (r *replay) answer(w http.ResponseWriter, req *http.Request) bool {
	if req.Method != http.MethodGet || !strings.HasPrefix(req.URL.Path, "/api/v1/") || !strings.HasSuffix(req.URL.Path, "/pods") {
		return false
	}
	q := req.URL.Query()
	w.Header().Set("Cache-Control", "no-cache, private")
	w.Header().Set("Content-Type", "application/json")
	if q.Get("watch") == "true" {
		r.watch(w, req, q)
	} else {
		r.list(w, q)
	}
	return true
}

// list writes the first objects. Changes while it does are no concern of the sizes measured here,
// and a feed that loads page by page would be told so by its proof.
func (r *replay) list(w http.ResponseWriter, q url.Values) {
	r.mu.Lock()
	revision, n := r.latest, len(r.revisions)
	if strings.Contains(q.Get("fieldSelector"), "metadata.name=~") {
		n = 0
	}
	limit, err := strconv.Atoi(q.Get("limit"))
	if err != nil || limit > n {
		limit = n
	}
	revisions := append([]uint64(nil), r.revisions[:limit]...)
	r.mu.Unlock()

	var b []byte
	b = fmt.Appendf(b, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"%d"`, revision)
	if limit < n {
		token := policy.EncodeContinue(revision, "default/"+podName(limit-1)+"\x00")
		b = fmt.Appendf(b, `,"continue":"%s","remainingItemCount":%d`, token, n-limit)
	}
	b = append(b, `},"items":[`...)
	for i, at := range revisions {
		if i > 0 {
			b = append(b, ',')
		}
		b = r.appendPod(b, i, at, false)
	}
	_, _ = w.Write(append(b, "]}\n"...))
}

// watch sends the state if it is asked for, and then changes and bookmarks.
func (r *replay) watch(w http.ResponseWriter, req *http.Request, q url.Values) {
	seconds, err := strconv.Atoi(q.Get("timeoutSeconds"))
	if err != nil {
		seconds = 300
	}
	ctx, cancel := context.WithTimeout(req.Context(), time.Duration(seconds)*time.Second)
	defer cancel()
	at, _ := strconv.ParseUint(q.Get("resourceVersion"), 10, 64)
	var out bytes.Buffer
	flush := func() bool {
		_, err := w.Write(out.Bytes())
		out.Reset()
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
		return err == nil
	}
	// A feed looks at one object by name to learn how events show it.
	name, named := strings.CutPrefix(q.Get("fieldSelector"), "metadata.name=")
	streamed := q.Get("sendInitialEvents") == "true"
	if streamed || at == 0 {
		r.mu.Lock()
		revisions, latest := append([]uint64(nil), r.revisions...), r.latest
		r.mu.Unlock()
		for i, revision := range revisions {
			if named && podName(i) != name {
				continue
			}
			r.event(&out, "ADDED", i, revision)
			if out.Len() > 1<<20 && !flush() {
				return
			}
		}
		if streamed {
			bookmark(&out, latest, true)
		}
		at = latest
	} else {
		at = max(at, r.first-1)
		bookmark(&out, at, false)
	}
	if !flush() {
		return
	}
	quiet := time.NewTicker(bookmarkEvery)
	defer quiet.Stop()
	for {
		r.mu.Lock()
		changes, more := r.log[at+1-r.first:], r.more
		r.mu.Unlock()
		for _, i := range changes {
			at++
			if named && podName(i) != name {
				continue
			}
			r.event(&out, "MODIFIED", i, at)
		}
		if out.Len() > 0 && !flush() {
			return
		}
		select {
		case <-more:
		case <-quiet.C:
			bookmark(&out, at, false)
		case <-ctx.Done():
			return
		case <-r.life.Done():
			return
		}
	}
}

func (r *replay) event(out *bytes.Buffer, kind string, i int, revision uint64) {
	_, _ = fmt.Fprintf(out, `{"type":"%s","object":`, kind)
	out.Write(r.appendPod(out.AvailableBuffer(), i, revision, true))
	out.WriteString("}\n")
}

func bookmark(out *bytes.Buffer, revision uint64, endsInitial bool) {
	annotations := ""
	if endsInitial {
		annotations = `,"annotations":{"k8s.io/initial-events-end":"true"}`
	}
	_, _ = fmt.Fprintf(out, `{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"%d"%s},`+
		`"spec":{"containers":null},"status":{}}}`+"\n", revision, annotations)
}
