package main

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
)

// kubelets renew their nodes' Leases, each with a PUT of the one that the last answer held.
type kubelets struct {
	leases coordinationclient.LeaseInterface
	held   chan *coordinationv1.Lease // whose turn it is comes first
}

func kubeletsAt(ctx context.Context, at server) (kubelets, error) {
	config := &rest.Config{Host: at.URL, BearerToken: at.Token, QPS: -1}
	config.CAData, config.ContentType, config.AcceptContentTypes = at.CA, runtime.ContentTypeProtobuf, acceptProtobuf
	client, err := coordinationclient.NewForConfig(config)
	if err != nil {
		return kubelets{}, err
	}
	k := kubelets{leases: client.Leases(corev1.NamespaceNodeLease)}
	all, err := k.leases.List(ctx, metav1.ListOptions{})
	if err != nil {
		return kubelets{}, err
	}
	k.held = make(chan *coordinationv1.Lease, len(all.Items))
	for i := range all.Items {
		k.held <- &all.Items[i]
	}
	return k, nil
}

// renew renews the Lease whose turn it is.
func (k kubelets) renew(ctx context.Context) error {
	lease := <-k.held
	lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
	renewed, err := k.leases.Update(ctx, lease, metav1.UpdateOptions{})
	if err != nil {
		k.held <- lease
		return err
	}
	k.held <- renewed
	return nil
}
