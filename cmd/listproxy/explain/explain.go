package explain

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/cmd/listproxy/cli"
	"github.com/listproxy/listproxy/cmd/listproxy/policyfile"
	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy"
	"github.com/listproxy/listproxy/proxy/kubehttp"
)

// NewCommand makes the command that says what becomes of a request. userAgent is what it calls
// itself where it asks a running listproxy, and the request has no name of its own.
func NewCommand(userAgent string) *cobra.Command {
	var headers []string
	var config string
	var assumed assumptions
	var r *http.Request
	running := running{userAgent: userAgent}
	cmd := &cobra.Command{
		Use:   "explain METHOD URL",
		Short: "Say what would happen to a request, and why",
		Long: `Says whether a request would be answered from memory or forwarded, and why, as far as that
can be said without contacting a cluster. Unless you say otherwise, it assumes a request with a
bearer token (--header 'Authorization: …' for another), for a built-in resource (--custom), from
a caller whom no newestAsAny names (--as, --as-group).

  listproxy policy explain GET '/api/v1/pods?resourceVersion=0&limit=500'
  listproxy policy explain GET '/apis/example.com/v1/widgets?resourceVersion=0' --custom \
      --header 'Accept: application/json' --config policy.yaml
  listproxy policy explain GET '/api/v1/pods?limit=500' --consistent-lists=true
  listproxy policy explain GET /api/v1/pods --as system:serviceaccount:ci:builder --config policy.yaml

With --address it assumes nothing, and asks a running listproxy whether this request is answered
from memory now, and if not, why. A list or a watch is sent, with the credentials of --kubeconfig,
and only the head of the answer is read; if listproxy does not know the caller yet, it is sent once
more. Anything else is not sent.

  listproxy policy explain GET '/api/v1/pods?resourceVersion=0' --address https://127.0.0.1:8443`,
		Args: cli.WholeArgs(2),
		PreRunE: func(_ *cobra.Command, args []string) (err error) {
			if err := running.check(); err != nil {
				return err
			}
			if err := cli.CheckConsistentLists(assumed.consistent); err != nil {
				return err
			}
			r, err = readRequest(args[0], args[1], headers)
			return err
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if running.address != "" {
				return running.explain(cmd.Context(), cmd.OutOrStdout(), r, hasAuthorization(headers))
			}
			c, err := policyfile.ReadFlag(cmd.Flags(), config)
			if err != nil {
				return err
			}
			c = c.With(policy.Switches{Consistent: policy.ConsistentLists(assumed.consistent), Watches: assumed.watches})
			return writeExplanation(cmd.OutOrStdout(), c, r, assumed)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringArrayVar(&headers, "header", nil, "a `header` of the request, 'Name: value'; may be repeated")
	fs.StringVar(&config, "config", "", "policy `file`; without it, the built-in policy")
	fs.BoolVar(&assumed.custom, "custom", false, "the resource is defined by a CustomResourceDefinition")
	assumed.consistent = string(policy.ConsistentNever)
	cli.AddConsistentLists(fs, &assumed.consistent, "what listproxy is started with: true, always or false")
	fs.BoolVar(&assumed.watches, "watches", false, "listproxy is started with --watches")
	fs.StringVar(&assumed.caller.Name, "as", "", "the caller's `user` name, as kubectl auth whoami shows it")
	fs.StringArrayVar(&assumed.caller.Groups, "as-group", nil, "a `group` of the caller; may be repeated")
	running.addFlags(fs)
	return cmd
}

// assumptions are what an explanation takes for granted.
type assumptions struct {
	custom bool
	// consistent is --consistent-lists, and watches --watches.
	consistent string
	watches    bool
	caller     user.DefaultInfo
}

// readRequest makes of words what the server would make of a request with them.
func readRequest(method, target string, headers []string) (*http.Request, error) {
	if !strings.HasPrefix(target, "/") {
		u, err := url.Parse(target)
		if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
			return nil, fmt.Errorf("%q is neither a path (/api/v1/pods) nor a URL (https://host/api/v1/pods)", target)
		}
		target = u.RequestURI()
	}
	if strings.ContainsAny(method+target, " \r\n\t") {
		return nil, errors.New("the method and the URL have no spaces: write %20 or + in a query")
	}
	lines := []string{strings.ToUpper(method) + " " + target + " HTTP/1.1", "Host: listproxy"}
	for _, header := range headers {
		name, value, found := strings.Cut(header, ":")
		if !found || name == "" || strings.ContainsAny(name, " \t") || strings.ContainsAny(header, "\r\n") {
			return nil, errors.New("--header: write a header as 'Name: value'") // it may hold a token
		}
		if strings.EqualFold(name, "Host") {
			continue // it decides nothing
		}
		lines = append(lines, name+": "+strings.TrimSpace(value))
	}
	if !hasAuthorization(headers) {
		lines = append(lines, "Authorization: Bearer assumed")
	}
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(strings.Join(lines, "\r\n") + "\r\n\r\n")))
	if err != nil {
		return nil, errors.New("this is not a request that an HTTP server reads: look at the method, the URL and the headers")
	}
	return r, nil
}

// hasAuthorization says whether headers say who the caller is.
func hasAuthorization(headers []string) bool {
	return slices.ContainsFunc(headers, func(header string) bool {
		name, _, _ := strings.Cut(header, ":")
		return strings.EqualFold(name, "Authorization")
	})
}

// writeExplanation says what proxy.Handler would do, in its order.
func writeExplanation(w io.Writer, c *policy.Config, r *http.Request, assumed assumptions) error {
	out := &strings.Builder{}
	by, _ := policy.ReadAuthorization(r.Header["Authorization"])
	list, why := policy.Parse(r, kubehttp.Of(r).Info, by)
	f := c.Forecast(list, why, assumed.custom, &assumed.caller)
	if why != "" || f.Why == reason.Watch {
		writeForwarded(out, f.Why, f.Why.Explain())
		return cli.WriteTable(w, out.String())
	}
	why = f.Why
	text := why.Explain()
	meant := policyfile.Meant(list.Group, list.Resource)
	switch {
	case meant != "":
		why = reason.UnknownResource
		text = fmt.Sprintf("Kubernetes has no %q here: did you mean %q? What kube-apiserver answers is passed on.", list.Resource, meant)
	case why == reason.NotCached && f.Rule.Cache == policy.CacheNever:
		text = "The policy keeps this resource out of memory."
	case why == reason.NotCached:
		text = fmt.Sprintf("The policy keeps it as %s, and the answer would be %s.", policyfile.RepresentationsOf(f.Rule), f.Representation)
	}
	if why != "" {
		writeForwarded(out, why, text)
	} else {
		parameter := ""
		if f.AsAny {
			parameter = "; newest-as-any"
		}
		fmt.Fprintf(out, "from memory\tCache-Status: listproxy; hit; detail=%s%s\n", f.Decision.Semantics, parameter)
		writeAnswer(out, list, f.Decision, f.Rule)
		form, kind := string(f.Representation), "a built-in resource"
		if list.Indented(assumed.custom) {
			form += ", indented"
		}
		if assumed.custom {
			kind = "a custom resource"
		}
		fmt.Fprintf(out, "  representation\t%s, as %s\n", form, kind)
	}
	fmt.Fprintf(out, "  resource\t%s\n", policy.RuleTarget{Group: list.Group, Version: list.Version, Resource: list.Resource})
	fmt.Fprintf(out, "  rule\t%s: cache %s\n", f.Rule.Source, f.Rule.Cache)
	if f.Newest && len(f.Rule.NewestAsAny) > 0 {
		fmt.Fprintf(out, "  newestAsAny\t%s\n", policyfile.NewestAsAnyOf(f.Rule))
	}
	if why == "" {
		writeOpen(out, list, f.Decision, f.Rule)
		writeProof(out, f.Decision, f.Rule.ConsistentLists)
		if list.Indented(assumed.custom) {
			fmt.Fprintln(out, "  the objects\tare not nested so deeply that indented JSON of them would be many times as long")
		}
	}
	return cli.WriteTable(w, out.String())
}

func writeForwarded(w *strings.Builder, why reason.Reason, text string) {
	fmt.Fprintf(w, "forwarded\t%s\n", why)
	fmt.Fprintf(w, "  why\t%s\n", text)
}

// meanings are what the semantics promise.
var meanings = map[policy.Semantics]string{
	policy.Any:          "the newest state that listproxy knows",
	policy.NotOlderThan: "the newest state that listproxy knows, if it is at revision %d or later",
	policy.Exact:        "the state at revision %d",
	policy.Continue:     "the next page of the state at revision %d",
	policy.MostRecent:   "the newest state, with everything that was written before the list came",
	policy.After:        "what happens after revision %d",
}

func writeAnswer(w *strings.Builder, list policy.Request, d policy.Decision, rule policy.Rule) {
	meaning := meanings[d.Semantics]
	if d.Revision > 0 {
		meaning = fmt.Sprintf(meaning, d.Revision)
	}
	fmt.Fprintf(w, "  state\t%s\n", meaning)
	if d.Semantics == policy.Continue {
		fmt.Fprintf(w, "  start\t%q\n", d.Start)
	}
	switch {
	case d.Initial:
		fmt.Fprintln(w, "  then\twhat happens after it, as a watch")
	case list.Watch:
	case d.Limit > 0:
		fmt.Fprintf(w, "  limit\t%d\n", d.Limit)
	case list.Options.Limit > 0:
		fmt.Fprintf(w, "  limit\t%d is ignored at resourceVersion=0 (limitAtZero: %s)\n", list.Options.Limit, rule.LimitAtZero)
	default:
		fmt.Fprintln(w, "  limit\tnone")
	}
	scope := "the whole resource"
	if list.Namespace != "" {
		scope = "namespace " + list.Namespace
	}
	fmt.Fprintf(w, "  scope\t%s\n", scope)
	for _, s := range []struct{ name, value string }{{"label selector", list.LabelSelector}, {"field selector", list.FieldSelector}} {
		if s.value != "" {
			fmt.Fprintf(w, "  %s\t%s\n", s.name, s.value)
		}
	}
}

// writeProof says what else can have a list of the newest state forwarded.
func writeProof(w *strings.Builder, d policy.Decision, consistent policy.ConsistentLists) {
	if d.Semantics != policy.MostRecent {
		return
	}
	sooner := ""
	if consistent == policy.ConsistentFaster {
		sooner = ", and is likely to come sooner than kube-apiserver's own answer"
	}
	within := "--consistent-wait" + sooner
	if d.Initial {
		within = proxy.WatchProofWait.String()
	}
	fmt.Fprintf(w, "  the proof\tthat it holds everything written comes within %s\n", within)
}

// writeOpen says what can still have it forwarded.
func writeOpen(w *strings.Builder, list policy.Request, d policy.Decision, rule policy.Rule) {
	aggregated := "an aggregated API server does not own it"
	if rule.SameForEveryone {
		aggregated = "(an aggregated API server may own it: sameForEveryone)"
	}
	fmt.Fprintln(w, "if, when the request comes,")
	fmt.Fprintf(w, "  discovery\thas it, with list and watch; %s\n", aggregated)
	fmt.Fprintf(w, "  the caller\twas accepted by kube-apiserver before, and its review says that it may %s this\n", list.Verb())
	state := "is loaded and up to date"
	if d.Revision > 0 {
		state += fmt.Sprintf(", and knows revision %d (history: %s)", d.Revision, policyfile.HistoryOf(rule))
	}
	fmt.Fprintf(w, "  the collection\t%s\n", state)
	if list.FieldSelector == "" {
		return
	}
	fmt.Fprintln(w, "  the selector\tnames fields that the resource has")
	if list.Namespace == "" && list.CheckSelectors(true, rule.LimitAtZero) != list.CheckSelectors(false, rule.LimitAtZero) {
		fmt.Fprintln(w, "  \tand does what it says there: that differs with and without namespaces")
	}
}
