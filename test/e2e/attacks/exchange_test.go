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
	// End is how the connection ended, if not well.
	End string
}

// An answer to one request. A 1xx is an answer too.
type answer struct {
	Stream  uint32 // of HTTP/2; the answers are in this order
	Status  int
	Header  http.Header
	Body    string
	Trailer http.Header
	Reset   string // how the body or the stream ended, if not well
}

// first is the answer to the attack, or an empty one.
func (o outcome) first() answer {
	for _, a := range o.Answers {
		if a.Status >= 200 || a.Status == 0 {
			return a
		}
	}
	return answer{}
}

// unbelieved tells whether listproxy has said that the certificate is wrong.
func (a answer) unbelieved() bool {
	return a.Status == http.StatusUnauthorized && strings.Contains(a.Body, "is not one that listproxy accepts")
}

// cacheStatus says where the answer to the attack came from.
func (o outcome) cacheStatus() string { return o.first().Header.Get("Cache-Status") }

func (o outcome) hit() bool { return o.first().hit() }

func (a answer) hit() bool { return strings.HasPrefix(a.Header.Get("Cache-Status"), "listproxy; hit") }

// followerArrived tells whether the API server has the request behind the attack, if there was an
// answer to it: that, by the attack's certificate, may come from memory, or be refused.
func (o outcome) followerArrived() bool {
	if len(o.Answers) < 2 {
		return true
	}
	last := o.Answers[len(o.Answers)-1]
	return !last.hit() && !last.unbelieved()
}

// shows tells whether any byte of an outcome is the marker's.
func (o outcome) shows(marker string) bool {
	for _, a := range o.Answers {
		if strings.Contains(a.Body, marker) {
			return true
		}
	}
	return false
}

var (
	// listRevision is the revision of a list. That of a list from memory may be another than the
	// API server's, since other resources' changes move it.
	listRevision = regexp.MustCompile(`"metadata":\s*\{\s*("continue":"",)?"resourceVersion":\s*"[0-9]+"`)
	// currentRevision is what the API server tells who asks for too large a revision.
	currentRevision = regexp.MustCompile(`, current: [0-9]+"`)
	// madeNow is when a review was made.
	madeNow = regexp.MustCompile(`("creationTimestamp"|"time"):"[^"]*"`)
	// ownIdentifier is what a request was given to be found in the audit log, or the random one
	// that the API server gives a request without.
	ownIdentifier = regexp.MustCompile(`^(a[0-9]{5}\.|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$)`)
)

// comparable returns an outcome without what may differ from another, or from itself. What is from
// memory there lacks the headers of the API server's flow control.
func (o outcome) comparable(there outcome) outcome {
	out := outcome{End: o.End}
	for i, a := range o.Answers {
		a.Header = a.Header.Clone()
		a.Header.Del("Date")
		a.Header.Del("Cache-Status")
		if id := a.Header.Get("Audit-Id"); id != "" {
			a.Header.Set("Audit-Id", ownIdentifier.ReplaceAllString(id, ""))
		}
		// net/http tells the length of a short body by itself, and what is short depends on the
		// protocol. A length must be right; whether it is told is not compared.
		if a.Header.Get("Content-Length") == strconv.Itoa(len(a.Body)) {
			a.Header.Del("Content-Length")
		}
		if i < len(there.Answers) && there.Answers[i].hit() {
			a.Header.Del("X-Kubernetes-Pf-Flowschema-Uid")
			a.Header.Del("X-Kubernetes-Pf-Prioritylevel-Uid")
		}
		if strings.HasPrefix(a.Body, `{"kind":"SelfSubject`) {
			a.Body = madeNow.ReplaceAllString(a.Body, "$1")
		}
		a.Body = currentRevision.ReplaceAllString(listRevision.ReplaceAllString(a.Body, ""), "")
		out.Answers = append(out.Answers, a)
	}
	return out
}

// diff says what of got is not as the API server has it. With closes, the connection may have been
// closed behind the first answer.
func diff(want, got outcome, closes bool) string {
	w, g := want.comparable(got), got.comparable(got)
	for i := 1; i < min(len(w.Answers), len(g.Answers)); i++ {
		// The follower shows the same certificate. That one is wrong is for listproxy to say.
		if w.Answers[i].Status == http.StatusUnauthorized && g.Answers[i].unbelieved() {
			g.Answers[i] = w.Answers[i]
		}
	}
	if closes && len(g.Answers) > 0 && len(g.Answers) < len(w.Answers) {
		w.Answers = w.Answers[:len(g.Answers)]
	}
	return cmp.Diff(w, g)
}
