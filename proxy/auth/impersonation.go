package auth

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/proxy/kubehttp"
)

// maxNamed bounds the questions about one user who is impersonated. For somebody in more groups the answer is a no.
const maxNamed = 64

// impersonation returns the answers that show that the upstream would let who impersonates the caller's
// user, the caller or listproxy's own account, do what a describes. Without them it would not.
// A review as that user does not show it: with constrained impersonation (KEP-5284) somebody may be
// allowed to create reviews as jane, and not to list as her. A request that the upstream would refuse if it
// were forwarded is not answered from memory.
//
// The upstream (k8s.io/apiserver/pkg/endpoints/filters/impersonation) lets somebody do something as a user
//
//   - who may "impersonate" the name, each group, the uid and each value of an extra; or
//   - who may "impersonate:user-info" all of them, and "impersonate-on:user-info:VERB" what is done. The user's own
//     review, which was sent with all of them, was allowed in this way if not in the other. So only the
//     second right is left to ask for.
//
// There are more modes, for nodes and service accounts without groups; in these lists are forwarded.
func (r *Authorizer) impersonation(ctx context.Context, who *Caller, a *Attributes) ([]answer[Decision], error) {
	named := who.Identity.Named()
	impersonator := *who
	impersonator.Identity = who.Identity.Impersonator()
	shown, err := r.allOf(ctx, &impersonator, toImpersonate(named)...)
	if err != nil || shown != nil || hasModeOfItsOwn(named.Name) {
		return shown, err
	}
	on := *a
	on.Verb = "impersonate-on:user-info:" + a.Verb
	return r.allOf(ctx, &impersonator, on)
}

// allOf returns the answers to questions if all are a yes, else none.
func (r *Authorizer) allOf(ctx context.Context, who *Caller, questions ...Attributes) (answers []answer[Decision], err error) {
	if len(questions) > maxNamed {
		return nil, nil
	}
	for _, question := range questions {
		got, err := r.ask(ctx, who, &question)
		if err != nil || got.value != Yes {
			return nil, err
		}
		answers = append(answers, got)
	}
	return answers, nil
}

// toImpersonate returns the questions whether somebody may impersonate a user for any request.
func toImpersonate(u *user.DefaultInfo) []Attributes {
	ask := func(group, resource, subresource, name string) Attributes {
		return Attributes{Verb: "impersonate", Group: group, Version: "v1", Resource: resource, Subresource: subresource, Name: name}
	}
	all := []Attributes{ask("", "users", "", u.Name)}
	if namespace, account, err := serviceaccount.SplitUsername(u.Name); err == nil {
		all[0] = ask("", "serviceaccounts", "", account)
		all[0].Namespace = namespace
	}
	for _, group := range u.Groups {
		all = append(all, ask("", "groups", "", group))
	}
	if u.UID != "" {
		all = append(all, ask(authenticationv1.GroupName, "uids", "", u.UID))
	}
	for key, values := range u.Extra {
		for _, value := range values {
			all = append(all, ask(authenticationv1.GroupName, "userextras", key, value))
		}
	}
	return all
}

// hasModeOfItsOwn reports whether constrained impersonation of a user is not that of user-info.
func hasModeOfItsOwn(name string) bool {
	_, _, err := serviceaccount.SplitUsername(name)
	return err == nil || strings.HasPrefix(name, "system:node:")
}

// WithOwnAccount returns send, except that what is asked as listproxy's own account is sent with the credentials of cfg.
func WithOwnAccount(send SendAs, cfg *rest.Config) (SendAs, error) {
	client, err := kubehttp.NewClient(cfg)
	if err != nil {
		return nil, fmt.Errorf("cannot ask for listproxy's own rights: %w", err)
	}
	return func(ctx context.Context, id Identity, r *http.Request) (*http.Response, error) {
		if id.IsOwn() {
			return client.Do(r)
		}
		return send(ctx, id, r)
	}, nil
}
