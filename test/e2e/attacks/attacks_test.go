package attacks

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// attacksByProtocol returns all attacks by protocol, and within a protocol by chapter. A chapter is a part of a test's name.
func attacksByProtocol() map[string]map[string][]attack {
	all := map[string]map[string][]attack{
		http1: {
			"targets": targetAttacks(), "lines": lineAttacks(), "lengths": lengthAttacks(),
			"connection": connectionAttacks(), "upgrades": upgradeAttacks(),
			"queries": queryAttacks(), // a query is the same string in both protocols
		},
		http2: {"pseudo": pseudoAttacks(), "fields": fieldAttacks(), "frames": frameAttacks()},
	}
	both := map[string][]attack{
		"identity": identityAttacks(), "credentials": credentialAttacks(), "paths": pathAttacks(),
		"methods": methodAttacks(), "headers": headerAttacks(), "watches": watchAttacks(),
		"resources": resourceAttacks(), "certificates": certificateAttacks(),
	}
	for _, chapters := range all {
		maps.Copy(chapters, both)
	}
	return all
}

// TestAttacks: each attack gets the same answers through listproxy as from kube-apiserver directly, or is refused if its row in
// the table says so. Whichever way an attack came, kube-apiserver's audit log has the same requests of the same users.
func TestAttacks(t *testing.T) {
	awaitMemory(t)
	// Run returns when its parallel subtests have ended, so the audit comes after all attacks.
	t.Run("by", func(t *testing.T) {
		for protocol, chapters := range attacksByProtocol() {
			for chapter, attacks := range chapters {
				for _, a := range attacks {
					for _, user := range a.usersOfRun() {
						inName := strings.ReplaceAll(protocol, "http/1.1", "http1") // a slash would begin a subtest
						t.Run(strings.Join([]string{inName, chapter, a.title(), user}, "/"), func(t *testing.T) {
							t.Parallel()
							run(t, protocol, a, user)
						})
					}
				}
			}
		}
	})
	t.Run("audit", testAudit)
}

// awaitMemory waits until the attacked lists come from memory.
func awaitMemory(t *testing.T) {
	t.Helper()
	for _, target := range []string{pods, podsOfA, podsOfB, configMaps, configMapsOfA} {
		poll.Until(t, patience, target+" comes from memory", func() bool {
			out, err := attack{target: target}.send(t.Context(), proxied, http2, admin)
			mustShowMarker := target != podsOfA // no pod of team-a has the marker
			return err == nil && out.hit() && out.shows(marker) == mustShowMarker
		})
	}
}

// publicReasons are the reasons in Cache-Status that anybody may learn. They follow from the request alone, and tell nothing of
// the cluster, of the policy or of what is in memory.
var publicReasons = []reason.Reason{
	reason.NotList, reason.NotCanonical, reason.Consistent, reason.Representation, reason.Credentials,
	reason.UnknownCaller, reason.ReviewFailed,
}

// run sends one attack as one user to both servers, judges the outcomes, and records the attack for the audit.
func run(t *testing.T, protocol string, a attack, user string) {
	t.Helper()
	fromUpstream, fromProxy := sendBoth(t, protocol, a, user)
	switch a.verdict {
	case refused:
		requireRefused(t, user, fromUpstream.outcome, fromProxy.outcome, a.wantStatus)
	case refusedAlike:
		requireRefused(t, user, fromUpstream.outcome, fromProxy.outcome, fromUpstream.toAttack().Status)
	case answeredAsUpstream:
		if d := diff(fromUpstream.outcome, fromProxy.outcome, a.mayClose); d != "" && !a.hasRefusedBody(fromProxy.outcome) {
			t.Errorf("%s (-direct +proxied):\n%s", fromProxy.cacheStatus(), d)
		}
		if slices.Contains(a.wantHitFor, user) && !fromProxy.hit() {
			t.Errorf("Cache-Status is %q, want an answer from memory", fromProxy.cacheStatus())
		}
	}
	_, detail, _ := strings.Cut(fromProxy.cacheStatus(), "detail=")
	isUnauthorized := fromUpstream.toAttack().Status == http.StatusUnauthorized
	isPublic := detail == "" || slices.Contains(publicReasons, reason.Reason(detail))
	if isUnauthorized && !isPublic {
		t.Errorf("a caller whom kube-apiserver does not accept learns the reason %q", detail)
	}
	records.Lock()
	defer records.Unlock()
	records.all = append(records.all, record{
		name:             t.Name(),
		directID:         fromUpstream.id,
		proxiedID:        fromProxy.id,
		verdict:          a.verdict,
		fromMemory:       fromProxy.hit(),
		answeredFollower: fromProxy.answeredFollower(),
		mayBeRefused:     a.hasRefusedBody(fromProxy.outcome) || a.mayClose,
		interrupted:      fromProxy.End != "" || fromProxy.toAttack().Reset != "",
	})
}

// sendBoth sends one attack as one user to kube-apiserver, and through listproxy, and returns both attempts. While the outcomes
// differ, or an answer did not come from memory that must, it tries again, up to maxAttempts times. kube-apiserver's own answer
// may change from one attempt to the next, so it is enough that listproxy's outcome equals one of kube-apiserver's so far.
func sendBoth(t *testing.T, protocol string, a attack, user string) (fromUpstream, fromProxy attempt) {
	t.Helper()
	var upstreamAttempts []attempt // each shows a right outcome
	for i := range maxAttempts {
		fromUpstream = a.mustSend(t, direct, protocol, user)
		fromProxy = a.mustSend(t, proxied, protocol, user)
		if fromProxy.shows(marker) && !a.maySeeMarker(user) {
			t.Errorf("the answer shows what %s may not list: %+v", user, fromProxy)
		}
		mayDiffer := a.verdict != answeredAsUpstream || a.hasRefusedBody(fromProxy.outcome)
		if mayDiffer {
			break
		}
		upstreamAttempts = append(upstreamAttempts, fromUpstream)
		isEqual := func(upstream attempt) bool { return diff(upstream.outcome, fromProxy.outcome, a.mayClose) == "" }
		if equal := slices.IndexFunc(upstreamAttempts, isEqual); equal >= 0 {
			fromUpstream = upstreamAttempts[equal]
		}
		d := diff(fromUpstream.outcome, fromProxy.outcome, a.mayClose)
		// An answer that must come from memory is forwarded now and then, for example after a failed review of the user's
		// rights.
		lacksHit := slices.Contains(a.wantHitFor, user) && !fromProxy.hit()
		if d == "" && !lacksHit {
			break
		}
		t.Logf("attempt %d, %s: %s (-direct +proxied):\n%s", i+1, fromProxy.id, fromProxy.cacheStatus(), d)
	}
	return fromUpstream, fromProxy
}

// requireRefused requires that the attack got a 4xx or no answer. If wantStatus is not 0, it must have got that status. An
// answer to the follower must be a 4xx as well, since the follower has no credentials. But on a connection with a certificate
// the follower is the certificate's user, and may get the status that kube-apiserver gave it.
func requireRefused(t *testing.T, user string, fromUpstream, fromProxy outcome, wantStatus int) {
	t.Helper()
	if first := fromProxy.toAttack(); wantStatus != 0 && first.Status != wantStatus {
		t.Errorf("status %d, want %d: %s", first.Status, wantStatus, first.Body)
	}
	for i, a := range fromProxy.Answers {
		isRefusal := a.Status == 0 || a.Status/100 == 4
		isToFollower := i > 0 && i < len(fromUpstream.Answers)
		hasUpstreamStatus := isToFollower && logins[user].certificate != nil && a.Status == fromUpstream.Answers[i].Status
		if !isRefusal && !hasUpstreamStatus {
			t.Errorf("answer %d has status %d, want a 4xx: %s", i, a.Status, a.Body)
		}
	}
	if fromProxy.End == hangs {
		t.Error("the connection hangs")
	}
}
