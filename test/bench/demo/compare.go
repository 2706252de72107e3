package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
)

const (
	// rounds is how often both are asked; the times shown are medians.
	rounds = 3
	// settleTime bounds the wait for listproxy to be able to answer: a collection that nobody
	// asked for before is loaded first.
	settleTime = 15 * time.Second
)

// question is a list that is asked of both.
type question struct {
	what   string
	who    pair
	path   string
	query  string
	accept string // a media type; JSON if empty
	limit  int    // of a page; the walk goes on to the last one
	zipped bool   // ask for gzip
	memory bool   // listproxy can answer it from memory
	// name, if given, is of an object that must be in the list.
	name string
}

// reply is the answer to a question, page by page.
type reply struct {
	pages    []answer
	took     time.Duration
	revision string
	items    int
}

// readPage reads a list, of whatever and in either encoding, as one of metadata.
func readPage(body []byte) (metav1.PartialObjectMetadataList, error) {
	var list metav1.PartialObjectMetadataList
	message, isProtobuf := bytes.CutPrefix(body, []byte("k8s\x00"))
	if !isProtobuf {
		return list, json.Unmarshal(body, &list)
	}
	var envelope runtime.Unknown
	if err := envelope.Unmarshal(message); err != nil {
		return list, err
	}
	return list, list.Unmarshal(envelope.Raw)
}

// ask asks one server, and follows continue tokens to the end.
func (q question) ask(ctx context.Context, c client) (reply, error) {
	var r reply
	query := q.query
	if q.limit > 0 {
		query += "&limit=" + strconv.Itoa(q.limit)
	}
	for {
		a, err := c.getAs(ctx, cmp.Or(q.accept, ask.JSON), q.path+"?"+query, q.zipped)
		if err != nil {
			return r, err
		}
		r.pages = append(r.pages, a)
		r.took += a.took
		p, err := readPage(a.Body)
		if err != nil {
			return r, fmt.Errorf("GET %s: %w", q.path, err)
		}
		r.revision = p.ResourceVersion
		r.items += len(p.Items)
		if p.Continue == "" {
			return r, nil
		}
		query = fmt.Sprintf("limit=%d&continue=%s", q.limit, url.QueryEscape(p.Continue))
	}
}

// exactly is the same question about one revision, which has only one right answer.
func (q question) exactly(revision string) (question, error) {
	values, err := url.ParseQuery(q.query)
	if err != nil {
		return q, fmt.Errorf("the query %q: %w", q.query, err)
	}
	values.Set("resourceVersion", revision)
	values.Set("resourceVersionMatch", "Exact")
	q.query = values.Encode()
	return q, nil
}

// compare asks both and returns the line of the table.
func (q question) compare(ctx context.Context) (row, error) {
	if err := q.settle(ctx); err != nil {
		return row{}, err
	}
	out := row{what: q.what, same: true, wantHit: q.memory}
	var direct, proxied []time.Duration
	for range rounds {
		theirs, err := q.ask(ctx, q.who.direct)
		if err != nil {
			return row{}, err
		}
		ours, err := q.ask(ctx, q.who.proxied)
		if err != nil {
			return row{}, err
		}
		same, err := q.same(ctx, ours, theirs)
		if err != nil {
			return row{}, err
		}
		out.same = out.same && same
		out.statuses = append(out.statuses, ours.statuses()...)
		direct, proxied = append(direct, theirs.took), append(proxied, ours.took)
		out.items, out.bytes, out.pages = ours.items, ours.wire(), len(ours.pages)
	}
	out.direct, out.proxied = median(direct), median(proxied)
	return out, nil
}

// same compares an answer of listproxy with what kube-apiserver says about that revision. A
// refusal has none; it is held against kube-apiserver's own.
func (q question) same(ctx context.Context, ours, theirs reply) (bool, error) {
	if ours.revision != "" && ours.revision != theirs.revision {
		exact, err := q.exactly(ours.revision)
		if err != nil {
			return false, err
		}
		if theirs, err = exact.ask(ctx, q.who.direct); err != nil {
			return false, err
		}
	}
	contained := q.name == "" || bytes.Contains(ours.pages[0].Body, []byte(`"name":"`+q.name+`"`))
	return contained && slices.EqualFunc(ours.pages, theirs.pages, func(a, b answer) bool {
		return a.Code == b.Code && bytes.Equal(a.Body, b.Body)
	}), nil
}

// settle asks listproxy until it answers from memory, for a bounded time.
func (q question) settle(ctx context.Context) error {
	deadline := time.Now().Add(settleTime)
	for q.memory && time.Now().Before(deadline) {
		r, err := q.ask(ctx, q.who.proxied)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(r.statuses(), func(s string) bool { return !isHit(s) }) {
			return nil
		}
		if !poll.Pause(ctx, pollPause) {
			return ctx.Err()
		}
	}
	return nil
}

func isHit(cacheStatus string) bool { return strings.HasPrefix(cacheStatus, "listproxy; hit") }

func (r reply) statuses() []string {
	var all []string
	for _, p := range r.pages {
		all = append(all, p.Source())
	}
	return all
}

func (r reply) wire() int {
	sum := 0
	for _, p := range r.pages {
		sum += p.wire
	}
	return sum
}

func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}
