package auth

import (
	"context"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// maxImpersonationQuestions bounds the questions about one impersonated user. If more are needed, since the user has very
// many groups, the right to impersonate counts as not proven.
const maxImpersonationQuestions = 64

// proveImpersonation asks whether the impersonator (the caller, or listproxy's own account) may act as the impersonated user
// in the request that attrs describe. It returns the answers that prove this right. proven is false if the impersonator
// lacks it.
//
// The review of the user's own right was sent as the user, but does not prove the right to impersonate: with constrained
// impersonation (KEP-5284), an impersonator may be allowed to create reviews as jane, but not to list as her.
//
// kube-apiserver (k8s.io/apiserver/pkg/endpoints/filters/impersonation) allows impersonation by one of two rights:
//
//   - the right to "impersonate" the name, each group, the uid and each value of an extra;
//   - the right to "impersonate:user-info" for all of these, together with "impersonate-on:user-info:VERB" for the request.
//     Only "impersonate-on" is asked for: without the other, the review could not have been sent as the user.
//
// For nodes and service accounts, kube-apiserver has further modes of constrained impersonation. listproxy does not ask for
// their rights, and forwards requests as nodes and service accounts unless the impersonator may "impersonate".
func (a *Authorizer) proveImpersonation(
	ctx context.Context, who *Caller, attrs *Attributes,
) (proof []answer[Decision], proven bool, err error) {
	impersonated := who.Identity.ImpersonatedUser()
	impersonator := *who
	impersonator.Identity = who.Identity.Impersonator()
	proof, proven, err = a.askAll(ctx, &impersonator, questionsToImpersonate(impersonated))
	if err != nil || proven || isNodeOrServiceAccount(impersonated.Name) {
		return proof, proven, err
	}
	constrained := *attrs
	constrained.Verb = "impersonate-on:user-info:" + attrs.Verb
	return a.askAll(ctx, &impersonator, []Attributes{constrained})
}

// askAll asks the questions, and returns the answers if all are Yes. It stops at the first other answer. If there are more than
// maxImpersonationQuestions, it asks none, and allYes is false.
func (a *Authorizer) askAll(
	ctx context.Context, who *Caller, questions []Attributes,
) (answers []answer[Decision], allYes bool, err error) {
	if len(questions) > maxImpersonationQuestions {
		return nil, false, nil
	}
	for _, question := range questions {
		answered, err := a.ask(ctx, who, &question)
		if err != nil || answered.value != Yes {
			return nil, false, err
		}
		answers = append(answers, answered)
	}
	return answers, true, nil
}

// questionsToImpersonate returns the questions whether a caller may "impersonate" u.
func questionsToImpersonate(u *user.DefaultInfo) []Attributes {
	var questions []Attributes
	add := func(question Attributes) {
		question.Verb = "impersonate"
		question.Version = "v1"
		questions = append(questions, question)
	}
	if namespace, account, err := serviceaccount.SplitUsername(u.Name); err == nil {
		add(Attributes{Resource: "serviceaccounts", Namespace: namespace, Name: account})
	} else {
		add(Attributes{Resource: "users", Name: u.Name})
	}
	for _, group := range u.Groups {
		add(Attributes{Resource: "groups", Name: group})
	}
	if u.UID != "" {
		add(Attributes{Group: authenticationv1.GroupName, Resource: "uids", Name: u.UID})
	}
	for key, values := range u.Extra {
		for _, value := range values {
			add(Attributes{Group: authenticationv1.GroupName, Resource: "userextras", Subresource: key, Name: value})
		}
	}
	return questions
}

// isNodeOrServiceAccount reports whether name is the name of a node or a service account.
func isNodeOrServiceAccount(name string) bool {
	_, _, err := serviceaccount.SplitUsername(name)
	return err == nil || strings.HasPrefix(name, "system:node:")
}
