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
	// Why says what these requests have in common. Do says what to change.
	Why string `json:"why"`
	Do  string `json:"do"`
	// Most are the clients that sent the most of these requests.
	Most []Sender `json:"most"`
}

// Sender is a client with the number of requests that it sent for a resource.
type Sender struct {
	UserAgent string `json:"userAgent"`
	User      string `json:"user,omitempty"`
	Resource  string `json:"resource"`
	Count     int64  `json:"count"`
}

// mostSenders is the number of senders that a piece of advice names.
const mostSenders = 3

// remedies say what to change so that requests are answered from memory. The keys are switches (an [answerer]) and
// reasons. For all other reasons, [reason.Reason.Explain] has the remedy.
var remedies = map[string]string{
	string(withConsistentLists): "Start listproxy with --consistent-lists. With \"true\" it still forwards small lists; " +
		"with \"always\" it answers nearly all. A client that need not see what was written a moment " +
		"ago can send resourceVersion=0: its lists are then answered without the switch.",
	string(withWatches): "Start listproxy with --watches.",
	string(reason.Representation): "Let programs ask for JSON or protobuf. (Audit logs do not name the form: for " +
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

// shared says what requests have in common, for keys of remedies that [reason.Reason.Explain] does not know.
var shared = map[string]string{
	string(withConsistentLists): "They name no resourceVersion: they ask for the newest state.",
	string(withWatches):         "They are watches and streaming lists.",
	string(whyRefused):          "kube-apiserver did not answer them with what they asked for.",
}

// advise returns advice about all requests that are not answered from memory as listproxy is set up.
func advise(rows []Row) []Advice {
	found := map[string]*Advice{}
	for _, row := range rows {
		for _, form := range row.Forms {
			if form.AnsweredBy == byMemory {
				continue
			}
			what := cmp.Or(string(form.Reason), string(form.AnsweredBy))
			if found[what] == nil {
				why, do := form.Reason.Explain()
				found[what] = &Advice{What: what, Why: cmp.Or(shared[what], why), Do: cmp.Or(remedies[what], do)}
			}
			found[what].add(row, form)
		}
	}
	all := make([]Advice, 0, len(found))
	for _, a := range found {
		slices.SortFunc(a.Most, func(a, b Sender) int {
			return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.UserAgent, b.UserAgent),
				cmp.Compare(a.Resource, b.Resource))
		})
		a.Most = a.Most[:min(len(a.Most), mostSenders)]
		all = append(all, *a)
	}
	slices.SortFunc(all, func(a, b Advice) int {
		return cmp.Or(cmp.Compare(b.Lists+b.Watches, a.Lists+a.Watches), cmp.Compare(a.What, b.What))
	})
	return all
}

// add counts the requests of a form, and their sender.
func (a *Advice) add(row Row, form Form) {
	if form.Kind == kindWatch {
		a.Watches += form.Count
	} else {
		a.Lists += form.Count
	}
	sender := Sender{UserAgent: row.UserAgent, User: row.User, Resource: row.Resource}
	i := slices.IndexFunc(a.Most, func(s Sender) bool { s.Count = 0; return s == sender })
	if i < 0 {
		i = len(a.Most)
		a.Most = append(a.Most, sender)
	}
	a.Most[i].Count += form.Count
}
