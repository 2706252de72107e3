package proxy

import (
	"net/http"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/proxy/kubehttp"
)

// reasonTold is the reason that is told for a list that was forwarded without a review, since memory could
// not have answered it whatever the review had said. What memory knows is only for callers who may
// list the resource, and whether this one may shows in kube-apiserver's answer: it refuses before it
// looks for the objects. So this caller is told what a review would have had it told: review-failed, if
// that answer does not show it.
func reasonTold(memorys policy.Reason, code int) policy.Reason {
	switch {
	case code == http.StatusOK, code == http.StatusGone:
		return memorys
	case code == http.StatusGatewayTimeout && memorys == policy.ReasonAhead:
		return memorys // kube-apiserver has waited for the revision
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return policy.ReasonNotAllowed
	}
	return policy.ReasonReviewFailed
}

// tellReason is for a request that was forwarded without a review, when its answer begins: it puts the
// reason that is told into the header, the last of whose values is listproxy's. Metrics and traces are not the
// caller's. They keep memory's reason where the caller is told of a review that failed: none was sent, and
// who looks after listproxy must not look for what is wrong with reviews.
func (s *observation) tellReason(code int) {
	told := reasonTold(s.unreviewed, code)
	s.cacheStatus = forwarded(told)
	if values := s.Header()[kubehttp.CacheStatusHeader]; len(values) > 0 {
		values[len(values)-1] = s.cacheStatus
	}
	if s.observer != nil && told != policy.ReasonReviewFailed {
		s.labels.reason = string(told)
	}
}
