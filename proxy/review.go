package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"reflect"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

const (
	defaultReviewTimeout = 10 * time.Second
	defaultReviewEntries = 16384

	// maxReviewsAtOnce bounds the reviews that are with the upstream,
	// maxReviewsWaiting those that wait for one of these places. Reviews are
	// not tied to the callers who wait for them, so callers who come and go
	// must not be able to pile them up.
	maxReviewsAtOnce  = 128
	maxReviewsWaiting = 1024

	// maxReviewBody bounds the answer to a review, in bytes. What was asked
	// comes back in it, so a request's longest selector fits.
	maxReviewBody = 1 << 20

	reviewPath = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
)

var errReviewsFull = errors.New("too many reviews are waiting for the upstream")

// Attributes are what is asked about: the request as the upstream would
// authorize it. All of them come from one parsed request (design law 4), the
// selectors as the query parameters had them.
type Attributes struct {
	Verb          string
	Group         string // empty for the core group
	Version       string
	Resource      string
	Subresource   string
	Namespace     string // empty for all namespaces and for cluster-scoped resources
	Name          string // empty unless the request is about one name
	LabelSelector string
	FieldSelector string
}

// ReviewConfig configures a Reviewer.
type ReviewConfig struct {
	// TTL is how long a yes may be used, counted from when its review was
	// sent. Zero or less: every request has a review of its own.
	TTL time.Duration
	// Timeout bounds one review, the wait for its turn included. Zero means
	// ten seconds.
	Timeout time.Duration
	// MaxEntries bounds the remembered decisions; one with a key of more than
	// half a kilobyte (a long selector) counts as several. Zero means 16384.
	MaxEntries int64
}

// Reviewer asks the upstream whether a caller may do something, as the caller:
// it sends a SelfSubjectAccessReview with the caller's own Authorization
// header, or as the user whom the proxy states. kube-apiserver authenticates that request as it would authenticate
// the caller's own, and answers by the same authorizer that its filters ask.
// Everyone who is authenticated may create such reviews (the ClusterRole
// system:basic-user); where someone may not, the answer is a no.
//
// Only a yes counts, only a yes is remembered, and no longer than the TTL. A
// right can therefore outlive its revocation by the TTL; Flush ends it sooner.
//
// It is safe for concurrent use.
type Reviewer struct {
	send     SendAs
	endpoint *url.URL
	ttl      time.Duration
	timeout  time.Duration
	log      *slog.Logger

	decisions *decisionCache
	reviews   shared[bool]
	turns     turns
	counts    reviewCounts
}

// NewReviewer returns a Reviewer that sends its reviews through send to the API
// server at base.
func NewReviewer(send SendAs, base *url.URL, cfg ReviewConfig, log *slog.Logger) (*Reviewer, error) {
	if cfg.Timeout <= 0 {
		cfg.Timeout = defaultReviewTimeout
	}
	if cfg.MaxEntries <= 0 {
		cfg.MaxEntries = defaultReviewEntries
	}
	decisions, err := newDecisionCache(cfg.MaxEntries)
	if err != nil {
		return nil, fmt.Errorf("cannot remember reviews: %w", err)
	}
	endpoint := base.JoinPath(reviewPath)
	endpoint.User = nil
	return &Reviewer{
		send:      send,
		endpoint:  endpoint,
		ttl:       cfg.TTL,
		timeout:   cfg.Timeout,
		log:       log,
		decisions: decisions,
		reviews:   shared[bool]{ttl: cfg.TTL, epoch: decisions.epoch.Load},
		turns:     newTurns(maxReviewsAtOnce, maxReviewsWaiting),
	}, nil
}

// Allowed says whether the upstream allows what a describes to the caller id.
// Everything but a plain yes is a no. An error means that the upstream could
// not be asked or gave no answer (transport trouble, a 5xx, a 429, ctx ended);
// it comes with false and holds nothing of the credential.
func (r *Reviewer) Allowed(ctx context.Context, id Identity, a Attributes) (bool, error) {
	// In a review, unlike in a request, an empty version means all versions.
	if !id.known() || a.Verb == "" || a.Version == "" || a.Resource == "" {
		return false, nil
	}
	if r.ttl <= 0 {
		r.counts.misses.Add(1)
		review, err := r.ask(ctx, id, a)
		return review.value, err
	}
	key := decisionKey(id, a)
	if r.decisions.has(key, time.Now()) {
		r.counts.hits.Add(1)
		return true, nil
	}
	r.counts.misses.Add(1)
	return r.reviews.get(ctx, key, func(ctx context.Context, epoch uint64) (dated[bool], error) {
		review, err := r.ask(ctx, id, a)
		if err == nil && review.value {
			r.decisions.add(key, epoch, term{review.asked, r.ttl}, time.Now())
		}
		return review, err
	})
}

// Flush forgets every decision, those included that the upstream is making for
// several callers now: a yes that was sent for before Flush was called is used
// for no request after it. (Without a TTL nothing is remembered or shared, and
// there is nothing to forget.)
func (r *Reviewer) Flush() { r.decisions.flush() }

// Close ends the cache of decisions. A Reviewer that is closed still answers,
// from the upstream only.
func (r *Reviewer) Close() { r.decisions.close() }

// ask sends one review when its turn comes and waits for the answer.
func (r *Reviewer) ask(ctx context.Context, id Identity, a Attributes) (dated[bool], error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	end, err := r.turns.take(ctx, errReviewsFull)
	if err != nil {
		return dated[bool]{}, err
	}
	defer end()
	asked := time.Now()
	allowed, err := r.post(ctx, id, a)
	return dated[bool]{allowed, asked}, err
}

// post makes the request and judges the response.
func (r *Reviewer) post(ctx context.Context, id Identity, a Attributes) (bool, error) {
	review := newReview(a)
	body, err := json.Marshal(review)
	if err != nil {
		return false, fmt.Errorf("cannot write the review: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.endpoint.String(), bytes.NewReader(body))
	if err != nil {
		return false, fmt.Errorf("cannot make the review's request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "listproxy")

	resp, err := r.send(ctx, id, req)
	if err != nil {
		return false, fmt.Errorf("the review did not reach the upstream or was not answered: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxReviewBody+1))
	switch {
	case resp.StatusCode >= http.StatusInternalServerError, resp.StatusCode == http.StatusTooManyRequests:
		return false, fmt.Errorf("the upstream answered the review with status %d", resp.StatusCode)
	case resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusCreated:
		return false, nil
	case err != nil:
		return false, fmt.Errorf("the upstream's answer to the review broke off: %w", err)
	}
	allowed, problem := judgeReview(answer, review)
	if problem != "" {
		r.log.DebugContext(ctx, "The upstream's answer to a review cannot be used, which counts as a no", "problem", problem)
	}
	return allowed, nil
}

// newReview returns the review that asks for a.
func newReview(a Attributes) *authorizationv1.SelfSubjectAccessReview {
	attributes := &authorizationv1.ResourceAttributes{
		Verb:        a.Verb,
		Group:       a.Group,
		Version:     a.Version,
		Resource:    a.Resource,
		Subresource: a.Subresource,
		Namespace:   a.Namespace,
		Name:        a.Name,
	}
	if a.FieldSelector != "" {
		attributes.FieldSelector = &authorizationv1.FieldSelectorAttributes{RawSelector: a.FieldSelector}
	}
	if a.LabelSelector != "" {
		attributes.LabelSelector = &authorizationv1.LabelSelectorAttributes{RawSelector: a.LabelSelector}
	}
	return &authorizationv1.SelfSubjectAccessReview{
		TypeMeta: metav1.TypeMeta{
			APIVersion: authorizationv1.SchemeGroupVersion.String(),
			Kind:       "SelfSubjectAccessReview",
		},
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes},
	}
}

// judgeReview says whether answer is a yes to asked, and if it is no answer at all,
// why. What the upstream reviewed must be what was asked: an upstream that
// does not know a selector drops it, and bytes that are not UTF-8 come back
// as others.
func judgeReview(answer []byte, asked *authorizationv1.SelfSubjectAccessReview) (allowed bool, problem string) {
	if len(answer) > maxReviewBody {
		return false, "too long"
	}
	var review authorizationv1.SelfSubjectAccessReview
	if err := utiljson.Unmarshal(answer, &review); err != nil {
		return false, "not JSON of the expected form"
	}
	if review.TypeMeta != asked.TypeMeta {
		return false, "another kind of object"
	}
	if !reflect.DeepEqual(review.Spec, asked.Spec) {
		return false, "another question"
	}
	return review.Status.Allowed && !review.Status.Denied, ""
}
