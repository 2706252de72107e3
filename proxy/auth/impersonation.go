package auth

import (
	"context"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// maxImpersonationQuestions bounds the questions about one impersonated user. The right to impersonate a user with so many
// groups or extras that more questions are needed counts as not proven.
const maxImpersonationQuestions = 64

// proveImpersonation asks whether the impersonator (the caller, or listproxy's own account) may act as the impersonated user
// in the request that attrs describe. It returns the answers that prove this right. proven is false if the impersonator
// lacks it.
//
// For example, bob asks to list pods as jane. The review as jane shows that jane may list pods, but not that bob may list as
// her: with constrained impersonation (KEP-5284), bob may be allowed to create only reviews as jane. kube-apiserver
// (k8s.io/apiserver/pkg/endpoints/filters/impersonation) lets bob list as jane by either of these rights:
//
//  1. "impersonate" for jane's name, each of her groups, her uid and each value of an extra
//  2. "impersonate:user-info" for all of these, and "impersonate-on:user-info:list" for pods. bob has the first half, since
//     kube-apiserver has let him send the review as jane. So listproxy asks only about the second half.
//
// For nodes and service accounts, kube-apiserver has further modes of constrained impersonation, with other verbs. listproxy
// does not ask about these verbs. So only right 1 proves that a node or a service account may be impersonated. A request that
// relies on another mode is forwarded, and kube-apiserver decides.
func (a *Authorizer) proveImpersonation(
	ctx context.Context, who *Caller, attrs *Attributes,
) (proof []answer[Decision], proven bool, err error) {
	impersonated := who.Identity.ImpersonatedUser()
	impersonator := *who
	impersonator.Identity = who.Identity.Impersonator()
	proof, proven, err = a.askAll(ctx, &impersonator, questionsToImpersonate(impersonated)) // right 1
	if err != nil || proven || isNodeOrServiceAccount(impersonated.Name) {
		return proof, proven, err
	}
	constrained := *attrs
	constrained.Verb = "impersonate-on:user-info:" + attrs.Verb
	return a.askAll(ctx, &impersonator, []Attributes{constrained}) // right 2
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

// questionsToImpersonate returns the questions that must all be answered with Yes if a caller may "impersonate" u.
func questionsToImpersonate(u *user.DefaultInfo) []Attributes {
	var questions []Attributes
	if namespace, account, err := serviceaccount.SplitUsername(u.Name); err == nil {
		questions = append(questions, Attributes{Resource: "serviceaccounts", Namespace: namespace, Name: account})
	} else {
		questions = append(questions, Attributes{Resource: "users", Name: u.Name})
	}
	for _, group := range u.Groups {
		questions = append(questions, Attributes{Resource: "groups", Name: group})
	}
	if u.UID != "" {
		questions = append(questions, Attributes{Group: authenticationv1.GroupName, Resource: "uids", Name: u.UID})
	}
	for key, values := range u.Extra {
		for _, value := range values {
			extra := Attributes{Group: authenticationv1.GroupName, Resource: "userextras", Subresource: key, Name: value}
			questions = append(questions, extra)
		}
	}
	for i := range questions {
		questions[i].Verb = "impersonate"
		questions[i].Version = "v1"
	}
	return questions
}

// isNodeOrServiceAccount reports whether name is the name of a node or a service account.
func isNodeOrServiceAccount(name string) bool {
	_, _, err := serviceaccount.SplitUsername(name)
	return err == nil || strings.HasPrefix(name, "system:node:")
}
