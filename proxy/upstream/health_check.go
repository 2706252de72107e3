package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// healthEvery is the time between two checks, and up to a fifth more; healthAgain is the time
	// while checks fail but do not count yet.
	healthEvery = 2 * time.Second
	healthAgain = 500 * time.Millisecond
	// healthTimeout bounds one check. With the times above and those of [trouble.counts], any trouble
	// is known within ten seconds: 2.4 s, a check that fails, 0.5 s and another check.
	healthTimeout = 3 * time.Second
	// slowAfter is how long the answer to the SelfSubjectReview may take before the upstream counts as
	// slow.
	slowAfter = 1500 * time.Millisecond
	// manyDenied is a number of denied resources. If that many were denied before the time for a check
	// ended, the account has lost its rights: the answers were not slow, but many.
	manyDenied = 8
)

// healthResult is what one check found.
type healthResult struct {
	condition Condition
	began     time.Time
	answered  time.Time // zero: no answer came
	user      string    // whom the upstream takes listproxy for; empty: it did not say
	err       error     // why it is not ok
}

// check asks the upstream three questions, over one new connection: Who am I? May I list one of the
// resources that I need? Are you ready? Then it sees whether callers' requests are answered, too.
func (h *Health) check(ctx context.Context) healthResult {
	defer h.prober.closeIdle()
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	result := healthResult{condition: ConditionOK, began: time.Now()}
	fail := func(c Condition, err error) healthResult {
		result.condition, result.err = c, err
		return result
	}
	var who authenticationv1.SelfSubjectReview
	who.APIVersion, who.Kind = authenticationv1.SchemeGroupVersion.String(), "SelfSubjectReview"
	status, said, err := h.post(ctx, "/apis/authentication.k8s.io/v1/selfsubjectreviews", &who)
	took := time.Since(result.began)
	if err != nil {
		return fail(ConditionUnreachable, reachError(err))
	}
	result.answered, result.user = time.Now(), who.Status.UserInfo.Username
	// 404: before Kubernetes 1.28 it does not say who somebody is.
	if c := conditionOf(status, took); c != ConditionOK {
		return fail(c, answerError(status, said, took))
	}
	switch allowed, status, said, err := h.mayListAny(ctx); {
	case err != nil:
		return fail(conditionOfError(err), reachError(err))
	case conditionOf(status, 0) != ConditionOK:
		return fail(conditionOf(status, 0), answerError(status, said, 0))
	case !allowed:
		return fail(ConditionForbidden, errors.New("it may list none of the resources that are to be kept, nor customresourcedefinitions"))
	}
	status, body, err := h.prober.ask(ctx, "readyz", true)
	switch {
	case err != nil:
		return fail(conditionOfError(err), reachError(err))
	case status >= http.StatusInternalServerError:
		return fail(ConditionNotReady, fmt.Errorf("/readyz answers %d%s", status, failedOf(body)))
	}
	if err := h.Callers(ctx); err != nil {
		return fail(conditionOfError(err), fmt.Errorf("in the way of callers' requests: %w", reachError(err)))
	}
	return result
}

// definitions may be listed by any account that docs/rbac.yaml describes.
func definitions() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
}

// mayListAny asks whether listproxy may list one of the resources that it needs. It asks first
// about the one that was allowed the last time, so one question is usually enough. If listproxy
// needs none, it asks nothing.
func (h *Health) mayListAny(ctx context.Context) (allowed bool, status int, said string, err error) {
	if !h.allowed.Empty() {
		if allowed, status, said, err = h.mayList(ctx, h.allowed); allowed || err != nil || status != http.StatusCreated {
			return allowed, status, said, err
		}
	}
	needed := h.needs()
	if len(needed) == 0 {
		return true, http.StatusCreated, "", nil
	}
	for denied, gvr := range append(needed, definitions()) {
		allowed, status, said, err = h.mayList(ctx, gvr)
		if denied >= manyDenied && tooLate(err) {
			return false, http.StatusCreated, "", nil
		}
		if allowed {
			h.allowed = gvr
		}
		if allowed || err != nil || status != http.StatusCreated {
			break
		}
	}
	return allowed, status, said, err
}

func (h *Health) mayList(ctx context.Context, gvr schema.GroupVersionResource) (allowed bool, status int, said string, err error) {
	var review authorizationv1.SelfSubjectAccessReview
	review.APIVersion, review.Kind = authorizationv1.SchemeGroupVersion.String(), "SelfSubjectAccessReview"
	review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Verb: "list", Group: gvr.Group, Version: gvr.Version, Resource: gvr.Resource,
	}
	status, said, err = h.post(ctx, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review)
	return review.Status.Allowed, status, said, err
}

// post sends an object, and reads the one that is answered with 201 into it; said is the message of
// another answer.
func (h *Health) post(ctx context.Context, path string, object any) (status int, said string, err error) {
	body, err := json.Marshal(object)
	if err != nil {
		return 0, "", err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, h.prober.base.JoinPath(path).String(), bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json")
	res, err := h.prober.client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return 0, "", err
	}
	if res.StatusCode == http.StatusCreated {
		return res.StatusCode, "", json.Unmarshal(answer, object)
	}
	var refusal metav1.Status
	_ = json.Unmarshal(answer, &refusal) // else it says nothing
	return res.StatusCode, refusal.Message, nil
}

// conditionOfError returns the condition if no answer came, although earlier ones of the same check
// had come.
func conditionOfError(err error) Condition {
	if tooLate(err) {
		return ConditionSlow
	}
	return ConditionUnreachable
}

// reachError returns err, why the upstream was not reached, without the URL, which is always the
// same.
func reachError(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %v", healthTimeout)
	}
	if request, ok := errors.AsType[*url.Error](err); ok {
		return request.Err
	}
	return err
}

// answerError says what was answered.
func answerError(status int, said string, took time.Duration) error {
	switch {
	case took > slowAfter && status < http.StatusBadRequest:
		return fmt.Errorf("an answer took %v", took.Round(100*time.Millisecond))
	case said != "":
		return fmt.Errorf("it answers %d %s: %s", status, http.StatusText(status), said)
	}
	return fmt.Errorf("it answers %d %s", status, http.StatusText(status))
}

// maxFailed is how many checks of an API server's own are named.
const maxFailed = 3

// failedOf names the first checks that a /readyz says have failed.
func failedOf(body []byte) string {
	var failed []string
	for line := range strings.Lines(string(body)) {
		if name, found := strings.CutPrefix(line, "[-]"); found && len(failed) < maxFailed {
			name, _, _ = strings.Cut(name, " ")
			failed = append(failed, strings.TrimSpace(name))
		}
	}
	if len(failed) == 0 {
		return ""
	}
	return ": " + strings.Join(failed, ", ")
}

// tooLate says whether an error means that no answer came in time.
func tooLate(err error) bool {
	var timed interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timed) && timed.Timeout()
}
