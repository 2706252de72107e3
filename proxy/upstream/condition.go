package upstream

// Condition is the state of the upstream for listproxy's own account.
type Condition string

// The conditions.
const (
	// ConditionUnknown means that no probe has ended yet, or only one, which failed (see isConfirmed).
	ConditionUnknown Condition = "unknown"
	// ConditionOK means that the upstream answers, and allows listproxy what it needs.
	ConditionOK Condition = "ok"
	// ConditionUnreachable means that no answer comes, or that TLS fails, for example since another server is at the address.
	ConditionUnreachable Condition = "unreachable"
	// ConditionUnauthorized means that the upstream refuses listproxy's credentials (401).
	ConditionUnauthorized Condition = "unauthorized"
	// ConditionForbidden means that the upstream knows the account, and refuses all of its requests (403).
	ConditionForbidden Condition = "forbidden"
	// ConditionNotReady means that the upstream answers a 5xx, or something that no kube-apiserver answers.
	ConditionNotReady Condition = "not-ready"
)

// conditionTexts has the meaning of each condition in plain words, and advice what to do about a failure.
var conditionTexts = map[Condition]struct{ meaning, advice string }{
	ConditionUnknown: {meaning: "not known yet"},
	ConditionOK:      {meaning: "ok"},
	ConditionUnreachable: {
		meaning: "not reachable",
		advice: "check that it runs, and the way to it: the address and the CA in the kubeconfig, name resolution, " +
			"routes, the network proxy, a firewall, a NetworkPolicy. For up to --staleness-bound after its last answer, " +
			"lists and watches come from memory for callers whose rights were reviewed shortly before",
	},
	ConditionUnauthorized: {
		meaning: "of no use: it refuses listproxy's credentials (401)",
		advice:  "give listproxy a valid token or certificate: this one may have expired, or its account may have been deleted",
	},
	ConditionForbidden: {
		meaning: "of no use: it refuses every request of listproxy's account (403)",
		advice:  "grant listproxy's account to list and watch what is to be kept (docs/rbac.yaml, or the chart's ClusterRole)",
	},
	ConditionNotReady: {
		meaning: "not ready",
		advice:  "look at it: kubectl get --raw '/readyz?verbose', and its log; its etcd may be away",
	},
}

// Meaning returns the words that complete the sentence "kube-apiserver is …".
func (c Condition) Meaning() string { return conditionTexts[c].meaning }

// isConfirmed reports whether last, the result of the last probe, replaces the known condition. previous is the result of
// the probe before.
//
// An OK replaces the known condition at once. A new failure must be found by two probes, since it may be momentary: a load
// balancer may have changed API servers, or an API server that has just started refuses everybody until it has read the roles.
//
//	known       | previous    | last        |
//	any         | any         | ok          | confirmed
//	ok          | ok          | unreachable | not confirmed
//	ok          | unreachable | unreachable | confirmed
//	ok          | unreachable | forbidden   | confirmed: two probes have failed, though in two ways
//	unreachable | unreachable | forbidden   | not confirmed until forbidden is found twice
func isConfirmed(known, previous, last Condition) bool {
	if last == ConditionOK || last == previous {
		return true
	}
	return previous.isFailure() && !known.isFailure()
}

// isFailure reports whether the condition is known, and not OK.
func (c Condition) isFailure() bool { return c != ConditionOK && c != ConditionUnknown }
