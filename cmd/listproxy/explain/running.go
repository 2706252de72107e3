package explain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/cmd/listproxy/cli"
	"github.com/listproxy/listproxy/cmd/listproxy/kubeconfig"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/upstream"
)

// running is a listproxy that is asked what it would do with a request, and as whom.
//
// It is asked as any client asks: the request is sent as the caller, and of the answer only its
// head is read, which says where it comes from. So it tells nothing that the caller may not know,
// and needs no way in of its own.
type running struct {
	flags       *pflag.FlagSet
	address     string
	kubeconfig  string
	contextName string
	ca          string
	userAgent   string
}

func (o *running) addFlags(fs *pflag.FlagSet) {
	o.flags = fs
	fs.StringVar(&o.address, "address", "", "`URL` of a running listproxy, where clients go (https://127.0.0.1:8443): send it the "+
		"request,\nif that is a list or a watch, and say how it was answered")
	fs.StringVar(&o.kubeconfig, "kubeconfig", "",
		"with --address: `file` with the credentials to ask with; without it, $KUBECONFIG or ~/.kube/config")
	fs.StringVar(&o.contextName, "context", "", "with --address: `name` of the context; without it, the current one")
	fs.StringVar(&o.ca, "certificate-authority", kubeconfig.DefaultCA(),
		"with --address: `file` with the CA of listproxy's certificate; not needed if the kubeconfig leads to listproxy")
}

// check says whether flags are given that are for --address alone, or for what nobody is asked.
func (o *running) check() error {
	if o.address == "" {
		for _, name := range []string{"kubeconfig", "context", "certificate-authority"} {
			if o.flags.Changed(name) {
				return fmt.Errorf("--%s goes with --address, the listproxy to ask: give both or none", name)
			}
		}
		if o.flags.Changed("address") {
			return errors.New("--address is empty: give a URL like https://127.0.0.1:8443")
		}
		return nil
	}
	for _, name := range []string{"config", "custom", "consistent-lists", "watches", "as", "as-group"} {
		if o.flags.Changed(name) {
			return fmt.Errorf("--%s says what to assume, but with --address nothing is assumed: leave one of them out", name)
		}
	}
	u, err := url.Parse(o.address)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || strings.Trim(u.Path, "/") != "" {
		return errors.New("--address is not a URL like https://127.0.0.1:8443: where clients go, and not the --admin-bind-address")
	}
	return nil
}

// config is how to ask, and the name of the kubeconfig's user.
func (o *running) config() (*rest.Config, string, error) {
	loaded, err := kubeconfig.Load(o.kubeconfig, o.contextName)
	if err != nil {
		return nil, "", err
	}
	cfg, err := loaded.ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("the credentials to ask with (--kubeconfig): %w", err)
	}
	raw, err := loaded.RawConfig()
	if err != nil {
		return nil, "", fmt.Errorf("the credentials to ask with (--kubeconfig): %w", err)
	}
	name := raw.CurrentContext
	if o.contextName != "" {
		name = o.contextName
	}
	who := ""
	if current := raw.Contexts[name]; current != nil {
		who = current.AuthInfo
	}
	address := strings.TrimSuffix(o.address, "/")
	if o.flags.Changed("certificate-authority") || strings.TrimSuffix(cfg.Host, "/") != address {
		ca, err := os.ReadFile(o.ca)
		if err != nil {
			return nil, "", fmt.Errorf("the CA of listproxy's certificate: %w: give --certificate-authority", err)
		}
		cfg.TLSClientConfig = rest.TLSClientConfig{
			CAData:   ca,
			CertData: cfg.CertData, CertFile: cfg.CertFile, KeyData: cfg.KeyData, KeyFile: cfg.KeyFile,
		}
		cfg.Proxy = nil
	}
	cfg.Host = address
	cfg.UserAgent = "" // that of the request, if it has one
	return cfg, who, nil
}

// explain asks what becomes of r, which is as a server would read it, and writes that. authorized:
// r has credentials of its own.
func (o *running) explain(ctx context.Context, w io.Writer, r *http.Request, authorized bool) error {
	if !asksForObjects(r) {
		out := &strings.Builder{}
		writeForwarded(out, reason.NotList, reason.NotList.Explain())
		fmt.Fprintln(out, "  asked\tnobody: only lists and watches are sent, which change nothing")
		return cli.WriteTable(w, out.String())
	}
	cfg, who, err := o.config()
	if err != nil {
		return err
	}
	if authorized {
		cfg = rest.AnonymousClientConfig(cfg)
		who = "of --header"
	}
	client, err := upstream.Client(cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, kubeconfig.AnswerTimeout)
	defer cancel()
	var first reason.Reason
	for {
		a, err := o.askHead(ctx, client, cfg.Host, r, authorized)
		if err != nil {
			return fmt.Errorf("%s does not answer: %w", o.address, err)
		}
		if a.why() == reason.UnknownCaller && first == "" && a.code != http.StatusUnauthorized {
			first = a.why() // its answer has made the caller known
			continue
		}
		return a.write(w, o.address, who, first)
	}
}

// asksForObjects says whether a request is a list or a watch, which change nothing.
func asksForObjects(r *http.Request) bool {
	info := kubehttp.Of(r).Info
	return r.Method == http.MethodGet && info.IsResourceRequest && info.Subresource == "" &&
		slices.Contains([]string{"list", "watch"}, info.Verb) &&
		r.Header.Get("Upgrade") == "" && r.Header.Get("Connection") == ""
}

// head is what is read of an answer.
type head struct {
	code   int
	source string // Cache-Status
	said   string // the message of a Status that is an error
}

// maxSaid bounds what is read of an error.
const maxSaid = 64 << 10

// askHead sends a request, and reads no more than the head of its answer, and what an error says.
func (o *running) askHead(ctx context.Context, client *http.Client, host string, r *http.Request, authorized bool) (head, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // the rest is not sent
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, host+r.URL.RequestURI(), nil)
	if err != nil {
		return head{}, err
	}
	req.Header = r.Header.Clone()
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", o.userAgent)
	}
	if !authorized {
		req.Header.Del("Authorization") // the assumed one
	}
	resp, err := client.Do(req)
	if err != nil {
		return head{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	h := head{code: resp.StatusCode, source: resp.Header.Get(kubehttp.CacheStatusHeader)}
	if h.code >= http.StatusBadRequest {
		var status metav1.Status
		if body, err := io.ReadAll(io.LimitReader(resp.Body, maxSaid)); err == nil && json.Unmarshal(body, &status) == nil {
			h.said = status.Message
		}
	}
	return h, nil
}

// why is why the request was forwarded; empty if it was not.
func (h head) why() reason.Reason {
	if hit, detail := kubehttp.ReadCacheStatus(h.source); !hit {
		return reason.Reason(detail)
	}
	return ""
}

// write says what became of the request.
func (h head) write(w io.Writer, address, who string, first reason.Reason) error {
	out := &strings.Builder{}
	hit, detail := kubehttp.ReadCacheStatus(h.source)
	why := h.why()
	switch {
	case h.source == "" && h.code < http.StatusBadRequest:
		return fmt.Errorf("%s answers without Cache-Status: it is not a listproxy", address)
	case h.source == "":
		fmt.Fprintln(out, "refused\tby listproxy itself, or by what is in front of it")
	case hit:
		fmt.Fprintf(out, "from memory now\t%s\n", detail)
	default:
		fmt.Fprintf(out, "forwarded now\t%s\n", why)
		fmt.Fprintf(out, "  why\t%s\n", why.Explain())
		if why.Passes() {
			fmt.Fprintln(out, "  what to do\tnothing: this passes by itself. Ask again in a moment")
		} else if h.code != http.StatusForbidden && h.code != http.StatusUnauthorized {
			fmt.Fprintf(out, "  what to do\tsee %q in docs/operations.md, Reasons\n", why)
		}
	}
	if first != "" {
		fmt.Fprintf(out, "  before that\tforwarded (%s): the answer has shown that kube-apiserver knows you, and it was sent once more\n", first)
	}
	if h.source != "" {
		fmt.Fprintf(out, "  Cache-Status\t%s\n", h.source)
	}
	answer := fmt.Sprintf("%d %s", h.code, http.StatusText(h.code))
	if h.said != "" {
		answer += ": " + h.said
	}
	fmt.Fprintf(out, "  answer\t%s\n", answer)
	fmt.Fprintf(out, "  asked\t%s, as the user %s\n", address, who)
	return cli.WriteTable(w, strings.Map(withoutControlButTabs, out.String()))
}

// withoutControlButTabs drops what could command a terminal, and keeps the cells of a table.
func withoutControlButTabs(r rune) rune {
	if r == '\t' {
		return r
	}
	return cli.WithoutControl(r)
}
