package upstream

import (
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"syscall"
	"time"
)

// Condition is the state of the upstream, as listproxy's own account finds it.
type Condition string

// The conditions.
const (
	// ConditionUnknown: it was not asked yet, or has not failed for long enough.
	ConditionUnknown Condition = "unknown"
	// ConditionOK: it answers, and listproxy may do its work there.
	ConditionOK Condition = "ok"
	// ConditionUnreachable: no answer came, or it came from a wrong server.
	ConditionUnreachable Condition = "unreachable"
	// ConditionUnauthorized: it refuses listproxy's credentials (401).
	ConditionUnauthorized Condition = "unauthorized"
	// ConditionForbidden: it knows the account, and refuses all that the account asks for (403).
	ConditionForbidden Condition = "forbidden"
	// ConditionNotReady: it answers that it cannot work (5xx).
	ConditionNotReady Condition = "not-ready"
	// ConditionSlow: it answers, but late, or says that it has too much to do (429).
	ConditionSlow Condition = "slow"
	// ConditionTwoVersions: API servers of more than one version answer, or may.
	ConditionTwoVersions Condition = "two-versions"
)

// conditionWords is what is said of each condition: its meaning in plain words, the log's line when
// it begins, and what to do about it; ownAdvice is what to do if the fault is this replica's own, where
// that is something else.
var conditionWords = map[Condition]struct{ meaning, line, advice, ownAdvice string }{
	ConditionUnknown: {meaning: "not known yet"},
	ConditionOK:      {meaning: "ok"},
	ConditionUnreachable: {
		meaning:   "not reachable",
		line:      "kube-apiserver is not reachable",
		advice:    "see whether it runs, and whether a firewall or a NetworkPolicy is between",
		ownAdvice: "correct listproxy's way to it: the address and the CA in the kubeconfig, name resolution, routes, the network proxy",
	},
	ConditionUnauthorized: {
		meaning: "refuses listproxy's credentials (401)",
		line:    "kube-apiserver is of no use: it refuses listproxy's credentials (401)",
		advice:  "give listproxy a valid token or certificate: this one may have expired, or its account may have been deleted",
	},
	ConditionForbidden: {
		meaning: "refuses listproxy's account all it asks for (403)",
		line:    "kube-apiserver is of no use: it refuses listproxy's account all it asks for (403)",
		advice:  "grant listproxy's account to list and watch what is to be kept (docs/rbac.yaml, or the chart's ClusterRole)",
	},
	ConditionNotReady: {
		meaning: "answers, but is not ready",
		line:    "kube-apiserver is not ready",
		advice:  "look at it: kubectl get --raw '/readyz?verbose', and its log; its etcd may be away",
	},
	ConditionSlow: {
		meaning: "slow",
		line:    "kube-apiserver is slow",
		advice:  "see how busy it is, and the network between: reviews of callers' rights wait for it",
	},
	ConditionTwoVersions: {
		meaning: "in two versions",
		line:    "kube-apiserver is in two versions",
		advice:  "wait for the end of the upgrade: nothing is kept in memory until all API servers have one version",
	},
}

// Meaning says in plain words what a condition is.
func (c Condition) Meaning() string { return conditionWords[c].meaning }

const (
	// healthFailures is how many checks must fail, one after the other, before they count.
	healthFailures = 2
	// healthLasting is how long they must have failed. So a momentary failure, like a load balancer's
	// change of API servers, does not change the condition.
	healthLasting = 3 * time.Second
	// forbiddenLasting is the same for refused rights: an API server that has just started refuses
	// everybody until it has read the roles.
	forbiddenLasting = 5 * time.Second
)

// trouble is a row of checks that found the upstream in a condition other than ok.
type trouble struct {
	condition Condition // what the last one found
	checks    int
	since     time.Time // when the first one began
}

// after adds a check that found a condition and began at began. If the upstream is known to be in
// another trouble, the condition counts only after it was found for long enough itself.
func (t trouble) after(known, found Condition, began time.Time) trouble {
	if t.checks == 0 || t.condition != found && known != ConditionOK && known != ConditionUnknown {
		return trouble{found, 1, began}
	}
	return trouble{found, t.checks + 1, t.since}
}

// counts says whether the trouble has become the upstream's condition by now.
func (t trouble) counts(now time.Time) bool {
	lasting := healthLasting
	if t.condition == ConditionForbidden {
		lasting = forbiddenLasting
	}
	return t.checks >= healthFailures && now.Sub(t.since) >= lasting
}

// conditionOf returns the condition that the answer to a review shows.
func conditionOf(status int, took time.Duration) Condition {
	switch {
	case status == http.StatusUnauthorized:
		return ConditionUnauthorized
	case status == http.StatusForbidden:
		return ConditionForbidden
	case status == http.StatusTooManyRequests:
		return ConditionSlow
	case status >= http.StatusInternalServerError:
		return ConditionNotReady
	case status != http.StatusCreated: // a login page, a balancer's own page, another path
		return ConditionNotReady
	case took > slowAfter:
		return ConditionSlow
	}
	return ConditionOK
}

// ownFault says whether probably only this replica has a condition, so that others may work: its
// own network path fails, a token that only it has was not renewed, or its account has never
// worked. In contrast, an account that was deleted or has lost its rights fails for all replicas
// that share it; and an upstream that refuses connections, does not answer, or is not ready, fails
// for all replicas.
func ownFault(found healthResult, worked bool, logins []Login, now time.Time) bool {
	switch found.condition {
	case ConditionUnauthorized:
		return !worked || ownTokenEnded(logins, now)
	case ConditionForbidden:
		return !worked
	case ConditionUnreachable:
		return ownWay(found.err)
	}
	return false
}

// ownWay says whether the upstream was not reached for a reason on this side: a wrong CA, a name
// that is not resolved, no route, a network proxy.
func ownWay(err error) bool {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var dns *net.DNSError
	var op *net.OpError
	switch {
	case errors.As(err, &unknown), errors.As(err, &name), errors.As(err, &dns):
		return true
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETDOWN):
		return true
	}
	return errors.As(err, &op) && op.Op == "proxyconnect"
}
