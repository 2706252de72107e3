package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/test/inmemory"
	"github.com/listproxy/listproxy/test/oracle"
)

// Listers of the model (model_test.go) list widgets. A list from memory must have the bytes that
// inmemory.ControlPlane.WriteList writes for some revision. Two things may differ between API servers:
//
//   - The timeline. Each restore of etcd begins another one: the revisions after the restored one are given anew, to other
//     changes.
//   - The form of widgets. It is the generation of their definition, and the release of the API server that writes the answer.
//     A list may have the forms of servers that were up lately.

var (
	// formPattern finds the form of an object: the generation of its definition, and the release that wrote it.
	formPattern = regexp.MustCompile(`"spec":\{"definition":(\d+),"release":"([^"]*)"`)
	// envelopePattern finds a list's continue token and its revision.
	envelopePattern = regexp.MustCompile(
		`"kind":"WidgetList","metadata":\{"continue":"([^"]*)",(?:"remainingItemCount":\d+,)?"resourceVersion":"(\d+)"\}\}\n$`)
)

// listRequest is a list that a client requests.
type listRequest struct {
	inmemory.List
	user      string
	semantics string // "Any", "NotOlderThan", "Exact", "Consistent" or "Continue"
	revision  int64  // for NotOlderThan, Exact and Continue
	// hasShard adds a shardSelector for the namespace "two". These API servers ignore the parameter, so listproxy must, too.
	hasShard bool
}

// sentList is a list that a client has requested, with what was true when it was sent.
type sentList struct {
	listRequest
	sentAt              time.Time
	head                int64        // etcd's revision
	timelines           int          // the number of etcd's timelines
	outage              clock.Outage // listproxy's outage, or the last one
	isOldAnswerOnTheWay bool         // an answer of an earlier timeline was still on its way to listproxy
}

// query returns the parameters of the request. token is for Continue.
func (q listRequest) query(token string) url.Values {
	values := url.Values{}
	if q.Color != "" {
		values.Set("labelSelector", "color="+q.Color)
	}
	if q.Limit > 0 {
		values.Set("limit", strconv.Itoa(q.Limit))
	}
	if q.hasShard {
		const shard = "shardRange(object.metadata.namespace, '0x5000000000000000', '0x6000000000000000')"
		values.Set("shardSelector", shard)
	}
	switch q.semantics {
	case "Any":
		values.Set("resourceVersion", "0")
	case "NotOlderThan", "Exact":
		values.Set("resourceVersion", strconv.FormatInt(q.revision, 10))
		values.Set("resourceVersionMatch", q.semantics)
	case "Continue":
		values.Set("continue", token)
	}
	return values
}

// firstPage is the continue token of a request for a list's first page.
const firstPage = ""

// list requests a list. If the answer comes from memory, list checks it. It returns the list's revision and its continue token,
// or 0 and "" if the answer is no list.
func (m *model) list(ctx context.Context, q listRequest, token string) (revision int64, next string) {
	sent := sentList{
		listRequest: q, sentAt: time.Now(), head: m.plane.Revision(), timelines: m.plane.Timelines(),
		outage: m.outage(), isOldAnswerOnTheWay: m.isOldAnswerOnTheWay(),
	}
	resp, err := m.get(ctx, q.user, widgetsPath(q.Namespace), q.query(token))
	if err != nil {
		m.count("no answer")
		return 0, ""
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	envelope := envelopePattern.FindStringSubmatch(string(body))
	fromMemory := isFromMemory(resp)
	isList := err == nil && envelope != nil && resp.StatusCode == http.StatusOK
	if fromMemory && !isList {
		m.failf("%+v: an answer from memory is not a list: %d, %v: %s", q, resp.StatusCode, err, body)
		return 0, ""
	}
	if envelope == nil {
		m.count("no list")
		return 0, ""
	}
	revision, _ = strconv.ParseInt(envelope[2], 10, 64)
	if fromMemory {
		m.count(q.semantics)
		m.checkList(sent, revision, string(body))
	} else {
		m.count("forwarded " + q.semantics)
		_, why, _ := strings.Cut(resp.Header.Get("Cache-Status"), "detail=")
		m.count("why: " + why)
	}
	return revision, envelope[1]
}

// checkList fails the test unless some API server could have sent this list now: its objects at its revision, as new as the
// semantics require, in a form that a server still writes, to a user who may list.
func (m *model) checkList(sent sentList, revision int64, body string) {
	now := time.Now()

	// Some timeline has exactly these objects at the list's revision.
	if sent.semantics == "Any" {
		sent.Limit = 0 // kube-apiserver's watch cache ignores the limit
	}
	written := formsOf(body)
	current := m.currentTimeline()
	timeline, ok := m.timelineOf(sent.List, revision, body, written)
	if !ok {
		m.failf("%+v: no timeline has this list at revision %d: %s\nwant: %s", sent, revision, body,
			m.plane.WriteList(current, inmemory.Widgets, revision, sent.List, written.formOf))
		return
	}
	// If it is the current timeline, the revision is as new as the semantics require.
	if timeline == current {
		headAt := func(at time.Time) uint64 { return unsigned(m.plane.HeadAt(at)) }
		if err := sent.expected(now, m.plane.Timelines()).Judge(unsigned(revision), headAt); err != nil {
			m.failf("%+v: %v", sent, err)
		}
	} else if !m.mayBeFromOldTimeline(sent, now) {
		m.failf("%+v: a list of a timeline before etcd was last restored (%v ago), at revision %d: %s",
			sent, now.Sub(m.lastRestore()), revision, body)
	}
	// A server still writes these forms, and the user may list.
	m.checkForms(fmt.Sprintf("%+v", sent), written)
	if since := m.oldestReview(sent, now); !m.plane.AllowedSince(sent.user, since) {
		m.failf("%+v: answered although the user has had no right for the last %v", sent, now.Sub(since))
	}
}

// oldestReview returns the earliest time at which the API server can have been asked whether the user may list (a review), if
// the list is answered now:
//
//   - Outside an outage, modelReviewTTL before now.
//   - In an outage, twice modelReviewTTL before the time at which listproxy last heard from the upstream. That may be minutes
//     ago, since nobody can revoke a right in an outage.
func (m *model) oldestReview(sent sentList, now time.Time) time.Time {
	outage := m.outage()
	// An outage that ended after the request was sent may have gone on until after listproxy's decision.
	outage.Ongoing = outage.Ongoing || outage.Ended.After(sent.sentAt)
	asOf := outage.AsOf(now, modelMaxAge) // now, if there is no outage
	if asOf.Before(now) {
		return asOf.Add(-2*modelReviewTTL - modelAnswerTime)
	}
	return now.Add(-modelReviewTTL - modelAnswerTime)
}

// timelineOf returns the newest timeline on which an API server writes body for the list l at a revision, or false if there is
// none.
func (m *model) timelineOf(l inmemory.List, revision int64, body string, written forms) (found int, ok bool) {
	for timeline := m.currentTimeline(); timeline >= 0; timeline-- {
		if m.plane.WriteList(timeline, inmemory.Widgets, revision, l, written.formOf) == body {
			return timeline, true
		}
	}
	return 0, false
}

// mayBeFromOldTimeline reports whether a list that comes now may show a state of before etcd's last restore. It may if
// listproxy cannot know of the restore yet. A list that asks for any state may for 95 s after the restore (modelMaxAge).
func (m *model) mayBeFromOldTimeline(sent sentList, now time.Time) bool {
	restoredAt := m.lastRestore()
	if restoredAt.IsZero() {
		return true // no server of the restored etcd can be reached yet
	}
	if sent.sentAt.Before(restoredAt) || sent.isOldAnswerOnTheWay {
		return true
	}
	outageOutlastsRestore := sent.outage.Ongoing && sent.outage.Began.Before(restoredAt)
	if outageOutlastsRestore && !m.isQuiet(now) { // servers have not been up for long enough for listproxy to notice the restore
		return true
	}
	return sent.semantics == "Any" && now.Sub(restoredAt) < modelMaxAge
}

// lastRestore returns the time at which the servers of the etcd that was last restored could be reached; zero until then.
func (m *model) lastRestore() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.restoredAt
}

// expected returns how new the list must be if it comes now, by its semantics. timelines is the number of timelines now.
func (sent sentList) expected(now time.Time, timelines int) (want oracle.List) {
	switch sent.semantics {
	case "Any":
		want.ConfirmedBy = now.Add(-modelMaxAge)
	case "Consistent":
		if sent.timelines == timelines { // sent.head is a revision of the current timeline
			want.Revision = unsigned(sent.head)
		}
	case "NotOlderThan":
		want.Revision = unsigned(sent.revision)
	case "Exact", "Continue":
		want.Revision = unsigned(sent.revision)
		want.Exactly = true
	}
	return want
}

// unsigned returns a revision in the type that oracles use.
func unsigned(revision int64) uint64 { return uint64(revision) } // #nosec G115 -- no revision is negative

// signed returns a revision in the type that inmemory uses.
func signed(revision uint64) int64 { return int64(revision) } // #nosec G115 -- etcd's revisions fit

// forms are the forms of the items of an answer, in their order.
type forms []inmemory.Form

func formsOf(body string) (all forms) {
	for _, match := range formPattern.FindAllStringSubmatch(body, -1) {
		definition, _ := strconv.Atoi(match[1])
		all = append(all, inmemory.Form{Definition: definition, Release: match[2]})
	}
	return all
}

// formOf returns the form of item i, or the zero form if there is no such item.
func (f forms) formOf(i int) inmemory.Form {
	if i < len(f) {
		return f[i]
	}
	return inmemory.Form{}
}

// checkForms fails the test unless a server that was up lately could have written objects in these forms.
func (m *model) checkForms(what string, written forms) {
	now := time.Now()
	for _, f := range written {
		if !m.plane.MayWrite(f, now.Add(-modelDefinitionLag), now.Add(-modelReleaseLag)) {
			m.failf("%s: no server writes %+v any more", what, f)
			return
		}
	}
}

// runLister lists widgets until ctx ends. Each list has random parameters, and is read to its last page.
func (m *model) runLister(ctx context.Context, user string) {
	var lastRevision int64 // of the last list; 0 before the first one
	for ctx.Err() == nil {
		pause(20 * time.Second)
		q := randomListRequest(user, lastRevision)
		revision, token := m.list(ctx, q, firstPage)
		if revision > 0 {
			lastRevision = revision
		}
		for token != "" && ctx.Err() == nil {
			pause(30 * time.Second)
			page := q
			page.semantics = "Continue"
			page.revision = revision
			page.Start = inmemory.Start(token)
			if q.Namespace != "" {
				page.Start = q.Namespace + "/" + page.Start // a token has the key without the list's namespace
			}
			_, token = m.list(ctx, page, token)
		}
	}
}

// randomListRequest returns a request for a first page. lastRevision is a revision that the client has seen, or 0.
func randomListRequest(user string, lastRevision int64) listRequest {
	q := listRequest{user: user, semantics: oneOf("Any", "Consistent"), hasShard: oneIn(20)}
	if lastRevision > 0 && oneIn(3) {
		q.semantics = oneOf("NotOlderThan", "Exact")
		q.revision = lastRevision
	}
	q.Namespace = oneOf("", "", "one", "two")
	q.Color = oneOf("", "", "red")
	if oneIn(3) {
		q.Limit = 1 + rand.IntN(4)
	}
	return q
}
