package snapshot

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/inmemory"
)

// interceptor returns the time for which the answer to a request is held back, and an answer in place of the upstream's. If
// the answer is nil, the upstream answers.
type interceptor func(r *http.Request, kind requestKind) (hold time.Duration, instead *http.Response)

// answerer answers a request.
type answerer func(r *http.Request) *http.Response

// respond answers with a code and a body.
func respond(code int, body string) answerer {
	return func(r *http.Request) *http.Response { return inmemory.Answer(r, code, body) }
}

// refuse answers with an error of an API server.
func refuse(code int) answerer { return respond(code, statusOf(code)) }

// refuseFor answers with an error of an API server whose Retry-After is a number of seconds.
func refuseFor(seconds, code int) answerer {
	return func(r *http.Request) *http.Response {
		answer := refuse(code)(r)
		answer.Header.Set("Retry-After", strconv.Itoa(seconds))
		return answer
	}
}

// answerKind intercepts the requests of a kind. If answer returns nil, the upstream answers.
func answerKind(kind requestKind, answer answerer) interceptor {
	return func(r *http.Request, requested requestKind) (time.Duration, *http.Response) {
		if requested != kind {
			return 0, nil
		}
		return 0, answer(r)
	}
}

// afterTheLoad is a moment after the first request: to load and compare a state takes no time in a bubble.
const afterTheLoad = time.Millisecond

// fault is what an upstream does wrong: it answers requests late, or in another way.
type fault struct {
	kind       requestKind   // of the requests; "": of any kind
	begins     time.Duration // after the first request
	duration   time.Duration // 0: for ever
	everyOther bool          // only every second request is affected
	delay      time.Duration // before the answer
	answer     answerer      // nil: the upstream answers
}

func (f fault) intercept() interceptor {
	var firstRequest time.Time
	requests := 0
	return func(r *http.Request, kind requestKind) (time.Duration, *http.Response) {
		if firstRequest.IsZero() {
			firstRequest = time.Now()
		}
		since := time.Since(firstRequest) - f.begins
		isOver := f.duration > 0 && since > f.duration
		isOtherKind := f.kind != "" && f.kind != kind
		if isOtherKind || since < 0 || isOver {
			return 0, nil
		}
		requests++
		if f.everyOther && requests%2 != 0 {
			return 0, nil
		}
		if f.answer == nil {
			return f.delay, nil
		}
		return f.delay, f.answer(r)
	}
}

// restoreStorage answers probes with a revision below that of the load, for some time after the load.
func restoreStorage() interceptor {
	restored := respond(http.StatusOK, configMapList(3, ""))
	return fault{kind: kindProbe, begins: afterTheLoad, duration: 25 * time.Second, answer: restored}.intercept()
}

// restoreOneServer is restoreStorage for the server to which the feed's usual connection leads. Requests over connections of
// their own are answered as usual.
func restoreOneServer() interceptor {
	restored := restoreStorage()
	return func(r *http.Request, kind requestKind) (time.Duration, *http.Response) {
		if isElsewhere := r.Close; isElsewhere {
			return 0, nil
		}
		return restored(r, kind)
	}
}

// refuseStreamingLists refuses all streaming lists, also those of a name that cannot exist.
func refuseStreamingLists(answer answerer) interceptor {
	return func(r *http.Request, kind requestKind) (time.Duration, *http.Response) {
		if kind != kindStreamingList && kind != kindEmptyStreamingList {
			return 0, nil
		}
		return 0, answer(r)
	}
}

// loadInPages refuses streaming lists, and answers lists of a load's pages.
func loadInPages(first, later string) interceptor {
	refused := refuseStreamingLists(refuse(http.StatusUnprocessableEntity))
	return func(r *http.Request, kind requestKind) (time.Duration, *http.Response) {
		if _, refusal := refused(r, kind); refusal != nil {
			return 0, refusal
		}
		switch q := r.URL.Query(); {
		case q.Has("continue"):
			return 0, respond(http.StatusOK, later)(r)
		case q.Get("limit") == strconv.Itoa(maxLoadPage):
			return 0, respond(http.StatusOK, first)(r)
		}
		return 0, nil
	}
}

// answerShards answers lists of shards as kube-apiserver 1.37 does: it does not count the objects after a page.
func answerShards(r *http.Request, kind requestKind) (time.Duration, *http.Response) {
	q := r.URL.Query()
	if kind != kindList || !q.Has("shardSelector") {
		return 0, nil
	}
	shardInfo := fmt.Sprintf(`,"shardInfo":{"selector":%q}`, wire.AllShards)
	if isSample := q.Get("limit") == sampleLimit; isSample {
		return 0, respond(http.StatusOK, configMapList(9, `,"continue":"x"`+shardInfo, itemA))(r)
	}
	return 0, respond(http.StatusOK, configMapList(9, shardInfo, itemA, itemB))(r)
}
