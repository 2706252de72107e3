package source

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// Source reads one collection from the upstream. It is safe for concurrent use.
type Source struct {
	// Client sends requests with listproxy's own credentials.
	Client *http.Client
	// Base is the URL of the upstream.
	Base *url.URL
	// Collection names the collection.
	Collection CollectionKey
	// Token returns the continue token with which the upstream lists its state at a revision, from the key start on.
	Token func(revision uint64, start string) string
}

// AnswerTimeout is the longest time from a request to the end of the answer. For a watch, it is the longest time to the
// beginning of the answer.
const AnswerTimeout = 60 * time.Second

// maxListBytes is the largest size, in bytes, of the body of one list or page: the body is held in memory.
const maxListBytes = 1 << 30

// Encoding returns the encoding of the collection's representation.
func (s *Source) Encoding() wire.Encoding { return wire.EncodingOf(s.Collection.Representation) }

// get sends a request. If the status of the answer is 200, get returns the answer, and the caller must close its body. For
// any other status, the error is a [wire.AnswerError].
func (s *Source) get(ctx context.Context, namespace, accept string, query url.Values) (*http.Response, error) {
	u := s.Base.JoinPath(s.Collection.path(namespace))
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(WithCollection(ctx, s.Collection), http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	resp, err := s.Client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking the upstream for %s: %w", s.Collection, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, wire.ReadAnswerError(resp)
}

// ListResponse is the upstream's answer to a request for a list or for one page of it: parsed, as bytes, and its headers.
type ListResponse struct {
	wire.List
	Body   []byte
	Header http.Header
}

// List reads a list, or one page of it. An empty namespace stands for all namespaces.
func (s *Source) List(ctx context.Context, namespace string, query url.Values) (list ListResponse, err error) {
	ctx, cancel := context.WithTimeout(withDefaultPurpose(ctx, ForList), AnswerTimeout)
	defer cancel()
	resp, err := s.get(ctx, namespace, s.Collection.Representation.AcceptList(), query)
	if err != nil {
		return list, err
	}
	defer resp.Body.Close()
	list.Header = resp.Header
	if list.Body, err = io.ReadAll(io.LimitReader(resp.Body, maxListBytes+1)); err != nil {
		return list, fmt.Errorf("reading a list of %s: %w", s.Collection, err)
	}
	if len(list.Body) > maxListBytes {
		return list, fmt.Errorf("a list of %s has more than %d bytes", s.Collection, maxListBytes)
	}
	if list.List, err = s.Encoding().ParseList(list.Body); err != nil {
		return list, fmt.Errorf("%w: %w", wire.ErrForm, err)
	}
	return list, nil
}

// listBackoff has the five pauses between the six tries of [Source.ListRetrying]: 0.1, 0.2, 0.4, 0.8 and 1.6 seconds, each up
// to half longer at random. A longer Retry-After counts instead.
var listBackoff = wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 5}

// ListRetrying is like [Source.List], but tries again after a pause if the upstream is busy ([IsBusy]). It is for a list whose
// failure would make listproxy load the whole collection again, which costs the upstream more than another try.
func (s *Source) ListRetrying(ctx context.Context, namespace string, query url.Values) (ListResponse, error) {
	backoff := listBackoff // a copy, since Step changes it
	list, err := s.List(ctx, namespace, query)
	for IsBusy(err) && backoff.Steps > 0 {
		if !clock.Sleep(ctx, RetryPause(backoff.Step(), err)) {
			break
		}
		list, err = s.List(ctx, namespace, query)
	}
	return list, err
}

// Probe lists an object that does not exist. It returns the body of the empty list, and the list's revision, which is the
// upstream's current one. A probe costs the upstream little: its watch cache asks etcd for the current revision, and looks up
// one key. (With limit=1 instead, kube-apiserver 1.36 would walk all objects after the page.)
//
// The field selector also names the given fields. If the upstream does not accept one of them in a selector, it answers 400.
func (s *Source) Probe(ctx context.Context, fields ...wire.Field) (body []byte, revision uint64, err error) {
	namespace, selectsNothing := s.EmptySelection()
	terms := []string{selectsNothing}
	for _, field := range fields {
		terms = append(terms, field.Name+"=")
	}
	query := url.Values{"fieldSelector": {strings.Join(terms, ",")}}
	list, err := s.List(withDefaultPurpose(ctx, ForProbe), namespace, query)
	if err != nil {
		return nil, 0, err
	}
	if list.Meta.Revision == 0 {
		return nil, 0, fmt.Errorf("%w: a list without resourceVersion", wire.ErrForm)
	}
	return list.Body, list.Meta.Revision, nil
}

// Watch begins a watch. It sets the parameters watch and timeoutSeconds in query, and truncates the timeout to seconds. The
// watch goes on until ctx ends, the upstream ends it, or the stream is stopped. The caller must stop the stream, however the
// watch ends.
func (s *Source) Watch(ctx context.Context, namespace string, query url.Values, timeout time.Duration) (*Stream, error) {
	query.Set("watch", "true")
	// Without a timeout, the upstream would choose how long the watch lasts.
	timeout = timeout.Truncate(time.Second)
	query.Set("timeoutSeconds", strconv.Itoa(int(timeout/time.Second)))
	ctx, cancel := context.WithCancel(withDefaultPurpose(ctx, ForWatch))
	answerTimer := time.AfterFunc(AnswerTimeout, cancel)
	sentAt := time.Now()
	resp, err := s.get(ctx, namespace, s.Collection.Representation.AcceptWatch(), query) //nolint:bodyclose // the stream closes it
	isLate := !answerTimer.Stop()
	if err != nil {
		cancel()
		if isLate {
			err = fmt.Errorf("the upstream did not begin to answer a watch of %s within %v: %w", s.Collection, AnswerTimeout, err)
		}
		return nil, err
	}
	stream := &Stream{
		ContentType: resp.Header.Get("Content-Type"),
		Compressed:  resp.Uncompressed, // net/http sets Uncompressed if it has decompressed a gzip answer
		lifetime:    lifetime{sentAt: sentAt, answeredAt: time.Now(), timeout: timeout},
		cancel:      cancel,
	}
	stream.start(ctx, s.Encoding(), resp.Body)
	return stream, nil
}
