package upstream

import (
	"crypto/x509"
	"errors"
	"net"
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
)

// conditionWords is what is said of each condition: its meaning in plain words, and what to do about
// it; ownAdvice is what to do if the fault is this replica's own, where that is something else.
var conditionWords = map[Condition]struct{ meaning, advice, ownAdvice string }{
	ConditionUnknown: {meaning: "not known yet"},
	ConditionOK:      {meaning: "ok"},
	ConditionUnreachable: {
		meaning:   "not reachable",
		advice:    "see whether it runs, and whether a firewall or a NetworkPolicy is between",
		ownAdvice: "correct listproxy's way to it: the address and the CA in the kubeconfig, name resolution, routes, the network proxy",
	},
	ConditionUnauthorized: {
		meaning: "of no use: it refuses listproxy's credentials (401)",
		advice:  "give listproxy a valid token or certificate: this one may have expired, or its account may have been deleted",
	},
	ConditionForbidden: {
		meaning: "of no use: it refuses listproxy's account all it asks for (403)",
		advice:  "grant listproxy's account to list and watch what is to be kept (docs/rbac.yaml, or the chart's ClusterRole)",
	},
	ConditionNotReady: {
		meaning: "not ready",
		advice:  "look at it: kubectl get --raw '/readyz?verbose', and its log; its etcd may be away",
	},
}

// Meaning says in plain words what the upstream is in a condition.
func (c Condition) Meaning() string { return conditionWords[c].meaning }

// trouble is a row of questions that found the upstream in a condition other than ok.
type trouble struct {
	condition Condition // what the last one found
	questions int
	since     time.Time // when the first one began
}

// after adds a question that found a condition and began at began. If the upstream is known to be in
// another trouble, the condition counts only after it was found for long enough itself.
func (t trouble) after(known, found Condition, began time.Time) trouble {
	if t.questions == 0 || t.condition != found && known != ConditionOK && known != ConditionUnknown {
		return trouble{condition: found, questions: 1, since: began}
	}
	return trouble{condition: found, questions: t.questions + 1, since: t.since}
}

// counts says whether the trouble has become the upstream's condition by now. A momentary one, like
// a load balancer's change of API servers, does not; and an API server that has just started refuses
// everybody until it has read the roles.
func (t trouble) counts(now time.Time) bool {
	lasting := 3 * time.Second
	if t.condition == ConditionForbidden {
		lasting = 5 * time.Second
	}
	return t.questions >= 2 && now.Sub(t.since) >= lasting
}

// isOwnFault says whether probably only this replica has a trouble, so that others may work: its own
// network path fails, or its account has never worked. In contrast, an account that was deleted or
// has lost its rights fails for all replicas that share it; and an upstream that refuses connections,
// does not answer, or is not ready, fails for all replicas.
func isOwnFault(c Condition, err error, worked bool) bool {
	switch c {
	case ConditionUnauthorized, ConditionForbidden:
		return !worked
	case ConditionUnreachable:
		return isOwnPath(err)
	}
	return false
}

// isOwnPath says whether the upstream was not reached for a reason on this side: a wrong CA, a name
// that is not resolved, no route, a network proxy.
func isOwnPath(err error) bool {
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
