package upstream

// Condition is the state of the upstream, as listproxy's own account finds it.
type Condition string

// The conditions.
const (
	// ConditionUnknown means that it was not asked yet, or has not failed for long enough.
	ConditionUnknown Condition = "unknown"
	// ConditionOK means that it answers, and listproxy may do its work there.
	ConditionOK Condition = "ok"
	// ConditionUnreachable means that no answer came, or it came from a wrong server.
	ConditionUnreachable Condition = "unreachable"
	// ConditionUnauthorized means that it refuses listproxy's credentials (401).
	ConditionUnauthorized Condition = "unauthorized"
	// ConditionForbidden means that it knows the account, and refuses all that the account asks for (403).
	ConditionForbidden Condition = "forbidden"
	// ConditionNotReady means that it answers that it cannot work (5xx).
	ConditionNotReady Condition = "not-ready"
)

// conditionWords is what is said of each condition: its meaning in plain words, and what to do about it.
var conditionWords = map[Condition]struct{ meaning, advice string }{
	ConditionUnknown: {meaning: "not known yet"},
	ConditionOK:      {meaning: "ok"},
	ConditionUnreachable: {
		meaning: "not reachable",
		advice: "see whether it runs, and correct what is between: the address and the CA in the kubeconfig, name resolution, " +
			"routes, the network proxy, a firewall, a NetworkPolicy. Until --staleness-bound after it was last heard, lists and " +
			"watches that are in memory are answered to callers whose rights were reviewed just before",
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

// isCertain reports whether what the last two questions have found is the upstream's condition: a momentary
// trouble, like a load balancer's change of API servers, is not; and an API server that has just started
// refuses everybody until it has read the roles. known is the condition so far.
func isCertain(known, before, is Condition) bool {
	if is == ConditionOK || is == before {
		return true
	}
	return known.isWell() && !before.isWell()
}

// isWell reports whether nothing is known to be wrong.
func (c Condition) isWell() bool { return c == ConditionOK || c == ConditionUnknown }
