package attacks

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/google/go-cmp/cmp"
)

// An outcome is all that came back on one connection.
type outcome struct {
	Answers []answer
	// End is how the connection ended (hangs, notHTTP, closedEarly or an error code of HTTP/2); "" if the server closed it in
	// order.
	End string
}

// An answer is what came back for one request. A 1xx is an answer of its own.
type answer struct {
	Stream  uint32 // of HTTP/2, by which answers are sorted; 0 for HTTP/1.1
	Status  int
	Header  http.Header
	Body    string
	Trailer http.Header
	Reset   string // how the body or the stream broke off; "" if it ended in order
}

// toAttack returns the answer to the attack: the first answer that is no 1xx. It returns an empty answer if there is none.
func (o outcome) toAttack() answer {
	for _, a := range o.Answers {
		isInterim := a.Status >= 100 && a.Status < 200
		if !isInterim {
			return a
		}
	}
	return answer{}
}

// rejectsCertificate reports whether listproxy itself has refused the certificate.
func (a answer) rejectsCertificate() bool {
	return a.Status == http.StatusUnauthorized && strings.Contains(a.Body, "is not one that listproxy accepts")
}

// cacheStatus returns the Cache-Status of the answer to the attack.
func (o outcome) cacheStatus() string { return o.toAttack().Header.Get("Cache-Status") }

// hit reports whether the answer to the attack came from memory.
func (o outcome) hit() bool { return o.toAttack().hit() }

func (a answer) hit() bool { return strings.HasPrefix(a.Header.Get("Cache-Status"), "listproxy; hit") }

// answeredFollower reports whether listproxy itself answered the follower, the innocent request after the attack. It can do so
// from memory, or by refusing the certificate of the connection.
func (o outcome) answeredFollower() bool {
	if len(o.Answers) < 2 { // no answer to the follower
		return false
	}
	last := o.Answers[len(o.Answers)-1]
	return last.hit() || last.rejectsCertificate()
}

// shows reports whether a body contains the marker.
func (o outcome) shows(marker string) bool {
	for _, a := range o.Answers {
		if strings.Contains(a.Body, marker) {
			return true
		}
	}
	return false
}

var (
	// listRevision matches the revision of a list. In memory it may differ from kube-apiserver's, since writes of other
	// resources move it.
	listRevision = regexp.MustCompile(`"metadata":\s*\{\s*("continue":"",)?"resourceVersion":\s*"[0-9]+"`)
	// currentRevision matches a part of the error for a revision of the future.
	currentRevision = regexp.MustCompile(`, current: [0-9]+"`)
	// reviewTime matches the time of a review.
	reviewTime = regexp.MustCompile(`("creationTimestamp"|"time"):"[^"]*"`)
	// ownIdentifier matches what differs in the Audit-Id of two requests: the number of an attack, or the random UUID that
	// kube-apiserver gives a request without an Audit-Id.
	ownIdentifier = regexp.MustCompile(`^(a[0-9]{5}\.|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$)`)
)

// withoutVarying returns the outcome without what may differ between two outcomes of the same attack, such as the Date. An
// answer from memory lacks the headers of kube-apiserver's flow control. So where other has an answer from memory, these
// headers are removed, too.
func (o outcome) withoutVarying(other outcome) outcome {
	out := outcome{End: o.End}
	for i, a := range o.Answers {
		a.Header = a.Header.Clone()
		a.Header.Del("Date")
		a.Header.Del("Cache-Status")
		if id := a.Header.Get("Audit-Id"); id != "" {
			a.Header.Set("Audit-Id", ownIdentifier.ReplaceAllString(id, ""))
		}
		// net/http sets Content-Length of a short body by itself, and what is short depends on the protocol. So a length
		// must be right, but need not be there.
		if a.Header.Get("Content-Length") == strconv.Itoa(len(a.Body)) {
			a.Header.Del("Content-Length")
		}
		if i < len(other.Answers) && other.Answers[i].hit() {
			a.Header.Del("X-Kubernetes-Pf-Flowschema-Uid")
			a.Header.Del("X-Kubernetes-Pf-Prioritylevel-Uid")
		}
		if strings.HasPrefix(a.Body, `{"kind":"SelfSubject`) {
			a.Body = reviewTime.ReplaceAllString(a.Body, "$1")
		}
		a.Body = listRevision.ReplaceAllString(a.Body, "")
		a.Body = currentRevision.ReplaceAllString(a.Body, "")
		out.Answers = append(out.Answers, a)
	}
	return out
}

// diff returns how listproxy's outcome got differs from kube-apiserver's outcome want, or "". mayClose means that listproxy may
// have closed the connection after any answer, so that got may lack the last answers.
func diff(want, got outcome, mayClose bool) string {
	stableWant, stableGot := want.withoutVarying(got), got.withoutVarying(got)
	for i := 1; i < min(len(want.Answers), len(got.Answers)); i++ {
		// A follower with a wrong certificate is refused by listproxy in its own words.
		if want.Answers[i].Status == http.StatusUnauthorized && got.Answers[i].rejectsCertificate() {
			stableGot.Answers[i] = stableWant.Answers[i]
		}
	}
	if mayClose && len(got.Answers) > 0 && len(got.Answers) < len(want.Answers) {
		stableWant.Answers = stableWant.Answers[:len(got.Answers)]
	}
	return cmp.Diff(stableWant, stableGot)
}
