package analyze

import (
	"cmp"
	"slices"

	"github.com/listproxy/listproxy/policy/reason"
)

// Advice says what to change so that more requests are answered from memory.
type Advice struct {
	// What is a switch of listproxy, or the reason why kube-apiserver answers.
	What string `json:"what"`
	// Lists and Watches are the numbers of requests that the advice is about.
	Lists   int64 `json:"lists,omitempty"`
	Watches int64 `json:"watches,omitempty"`
	// Why says what these requests have in common.
	Why string `json:"why"`
	// Do says what to change.
	Do string `json:"do"`
	// Most are the senders of the most requests.
	Most []Sender `json:"most"`
}

// Sender is a client with the number of its requests for one resource.
type Sender struct {
	UserAgent string `json:"userAgent"`
	User      string `json:"user,omitempty"`
	Resource  string `json:"resource"`
	Count     int64  `json:"count"`
}

// maxSenders is the largest number of senders that an Advice names.
const maxSenders = 3

// remedies say what to change so that requests are answered from memory. The keys are reasons and, for switches, an
// [answerer]. For all other reasons, [reason.Reason.Explain] has the remedy.
var remedies = map[string]string{
	string(byMemoryIfConsistentLists): "Start listproxy with --consistent-lists. With \"true\" it still forwards small lists; " +
		"with \"always\" it answers nearly all. A client that need not see what was written a moment " +
		"ago can send resourceVersion=0: its lists are then answered without the switch.",
	string(byMemoryIfWatches): "Start listproxy with --watches.",
	string(reason.Representation): "Let programs ask for JSON or protobuf. (Audit logs lack the Accept header: for " +
		"kubectl with limit=500 a table is assumed, since kubectl get asks for one; kubectl get -o json looks the same.)",
	string(reason.NotCached): "Secrets are kept only if a rule names them, Events never. " +
		"A client can ask for less, or less often.",
	string(reason.Watch): "A rule of the policy says watches: false; or they are written in an old form (paths with " +
		"/watch/, watch=yes). Let the client write watch=true.",
	string(reason.Consistent): "A rule of the policy says consistentLists: false. Or they are continued at the newest " +
		"state, since their token has expired: let the client read its pages sooner.",
	string(whyRefused): "kube-apiserver refuses these too: the right is missing (403), the token is wrong (401), the " +
		"revision has expired (410), or it is too busy (429). Mend the client.",
}

// explanations say what requests have in common, for the keys of remedies that [reason.Reason.Explain] does not know.
var explanations = map[string]string{
	string(byMemoryIfConsistentLists): "They name no resourceVersion: they ask for the newest state.",
	string(byMemoryIfWatches):         "They are watches and streaming lists.",
	string(whyRefused):                "kube-apiserver did not answer them with what they asked for.",
}

// advise returns advice about all requests that are not answered from memory without a switch.
func advise(rows []Row) []Advice {
	byWhat := map[string]*Advice{}
	for _, row := range rows {
		for _, f := range row.Forms {
			if f.AnsweredBy == byMemory {
				continue
			}
			what := cmp.Or(string(f.Reason), string(f.AnsweredBy)) // without a reason, a switch is missing
			if byWhat[what] == nil {
				why, do := f.Reason.Explain()
				byWhat[what] = &Advice{What: what, Why: cmp.Or(explanations[what], why), Do: cmp.Or(remedies[what], do)}
			}
			byWhat[what].add(row, f)
		}
	}
	all := make([]Advice, 0, len(byWhat))
	for _, a := range byWhat {
		slices.SortFunc(a.Most, func(a, b Sender) int {
			return cmp.Or(
				cmp.Compare(b.Count, a.Count),
				cmp.Compare(a.UserAgent, b.UserAgent),
				cmp.Compare(a.User, b.User),
				cmp.Compare(a.Resource, b.Resource),
			)
		})
		a.Most = a.Most[:min(len(a.Most), maxSenders)]
		all = append(all, *a)
	}
	slices.SortFunc(all, func(a, b Advice) int {
		return cmp.Or(cmp.Compare(b.Lists+b.Watches, a.Lists+a.Watches), cmp.Compare(a.What, b.What))
	})
	return all
}

// add counts requests of a row, and their sender. All calls for a row must follow each other.
func (a *Advice) add(row Row, f FormCount) {
	if f.Verb == verbWatch {
		a.Watches += f.Count
	} else {
		a.Lists += f.Count
	}
	sender := Sender{UserAgent: row.UserAgent, User: row.User, Resource: row.Resource, Count: f.Count}
	if last := len(a.Most) - 1; last >= 0 && a.Most[last].isSame(sender) {
		a.Most[last].Count += f.Count
		return
	}
	a.Most = append(a.Most, sender)
}

// isSame reports whether s and other are the same client and resource.
func (s Sender) isSame(other Sender) bool {
	return s.UserAgent == other.UserAgent && s.User == other.User && s.Resource == other.Resource
}
