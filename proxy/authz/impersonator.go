package authz

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/proxy/authn"
	"github.com/listproxy/listproxy/proxy/upstream"
)

// Impersonator says whether the upstream would let listproxy's own account send a request as a user
// whom listproxy has verified. A review as that user does not say so: with constrained
// impersonation (KEP-5284) an account may be allowed to create reviews as jane, and not to list as
// her. A request that the upstream would refuse if it were forwarded is not answered from memory.
//
// The upstream lets the account do something as a user
// (k8s.io/apiserver/pkg/endpoints/filters/impersonation) if
//
//   - it may "impersonate" the user, each group, the uid and each extra; or
//   - it may "impersonate:user-info" all of them, and "impersonate-on:user-info:VERB" what is done.
//
// (There are two more modes, for users without groups. Listproxy always names groups.) The review of the
// caller's right was sent in one of these ways, with all of the user's groups and extras. So one question is
// left for each way: may the account impersonate somebody of this name, or may it list on behalf of others?
//
// The answers count for as long as those of an [Authorizer].
type Impersonator struct{ rights *Authorizer }

// NewImpersonator returns an Impersonator that asks with the credentials of cfg, which are
// listproxy's own. What it sends goes through observe.
func NewImpersonator(cfg *rest.Config, observe func(SendAs) SendAs, reviews Config, log *slog.Logger) (*Impersonator, error) {
	base, err := upstream.Base(cfg)
	if err != nil {
		return nil, err
	}
	client, err := upstream.Client(cfg)
	if err != nil {
		return nil, fmt.Errorf("cannot ask for listproxy's own rights: %w", err)
	}
	send := func(_ context.Context, _ authn.Identity, r *http.Request) (*http.Response, error) {
		return client.Do(r)
	}
	rights, err := NewAuthorizer(observe(send), base, reviews, log)
	if err != nil {
		return nil, err
	}
	return &Impersonator{rights}, nil
}

// Left is for how long a yes of [Impersonator.Review] still counts.
func (i *Impersonator) Left(yes Right, now time.Time) time.Duration { return i.rights.Left(yes, now) }

// Revoked is [Authorizer.Revoked] for the rights of listproxy's own account.
func (i *Impersonator) Revoked(namespace string) { i.rights.Revoked(namespace) }

// ownIdentity stands for listproxy's own account, the only one that an Impersonator asks about.
var ownIdentity = authn.As(&user.DefaultInfo{})

// Review says whether the upstream would let listproxy's account do what a describes as the caller.
// The caller was verified here, and its own review has said yes. For a caller with credentials of
// its own it returns nil, since that caller does not use listproxy's. The questions count to the
// caller.
func (i *Impersonator) Review(ctx context.Context, who Caller, a Attributes) (*Right, error) {
	if i == nil || who.Identity.Impersonated() == nil {
		return nil, nil
	}
	asked := Caller{Identity: ownIdentity, Accepted: true, Flow: who.Flow}
	right, err := i.rights.Review(ctx, asked, toImpersonate(who.Identity.Impersonated()))
	if err == nil && right.value != Yes {
		onBehalf := a
		onBehalf.Verb = "impersonate-on:user-info:" + a.Verb
		right, err = i.rights.Review(ctx, asked, onBehalf)
	}
	return &right, err
}

// toImpersonate is the question whether somebody may be impersonated for any request.
func toImpersonate(u *user.DefaultInfo) Attributes {
	a := Attributes{Verb: "impersonate", Version: "v1", Resource: "users", Name: u.Name}
	if namespace, account, err := serviceaccount.SplitUsername(u.Name); err == nil {
		a.Resource, a.Namespace, a.Name = "serviceaccounts", namespace, account
	}
	return a
}
