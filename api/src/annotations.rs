//! Annotations of DataVolumes, PVCs and related objects: requests of users, and state that controllers write.

/// What users and other components set.
pub mod request {
    /// On a DataVolume or PVC, with any value: bind and fill at once, without waiting for a consumer.
    pub const BIND_IMMEDIATE: &str = "cdi.kubevirt.io/storage.bind.immediate.requested";
    /// `false` on a DataVolume: fill the target PVC itself, without a populator. Otherwise the controller writes its decision.
    pub const USE_POPULATOR: &str = "cdi.kubevirt.io/storage.usePopulator";
    /// `true`: worker pods and temporary PVCs stay, for debugging.
    pub const RETAIN_PODS: &str = "cdi.kubevirt.io/storage.pod.retainAfterCompletion";
    /// The image with VMware's library.
    pub const VDDK_INIT_IMAGE: &str = "cdi.kubevirt.io/storage.pod.vddk.initimageurl";
    /// The ConfigMap with more options for VMware's library.
    pub const VDDK_EXTRA_ARGS: &str = "cdi.kubevirt.io/storage.pod.vddk.extraargs";
    /// Boolean: an existing PVC of the DataVolume's name becomes its own.
    pub const ALLOW_CLAIM_ADOPTION: &str = "cdi.kubevirt.io/allowClaimAdoption";
    /// With any value: bind a PV whose `claimRef` names this PVC.
    pub const CHECK_STATIC_VOLUME: &str = "cdi.kubevirt.io/storage.checkStaticVolume";
    /// The PVC that already holds the DataVolume's data.
    pub const PRE_POPULATED: &str = "cdi.kubevirt.io/storage.prePopulated";
    /// On a PVC: the DataVolume that need not fill it.
    pub const POPULATED_FOR: &str = "cdi.kubevirt.io/storage.populatedFor";
    /// `true` on a PVC: a foreign populator fills it.
    pub const EXTERNAL_POPULATION: &str = "cdi.kubevirt.io/externalPopulation";
    /// `kubevirt` or `archive`.
    pub const CONTENT_TYPE: &str = "cdi.kubevirt.io/storage.contentType";
    /// With any value: the PVC waits for an upload.
    pub const UPLOAD_TARGET: &str = "cdi.kubevirt.io/storage.upload.target";
    /// `namespace/name` of the PVC to copy.
    pub const CLONE_REQUEST: &str = "k8s.io/CloneRequest";
    /// The clone token.
    pub const CLONE_TOKEN: &str = "cdi.kubevirt.io/storage.clone.token";
    /// With any value: sizes of source and target are not compared.
    pub const PERMISSIVE_CLONE: &str = "cdi.kubevirt.io/permissiveClone";
    /// On a StorageClass: `copy`, `snapshot` or `csi-clone`.
    pub const CLONE_STRATEGY: &str = "cdi.kubevirt.io/clone-strategy";
    /// On a StorageProfile: time limit of smart and CSI clones before the fallback to a copy; `never`, seconds, or minutes as
    /// `5m`.
    pub const CLONE_FALLBACK_AFTER: &str = "cdi.kubevirt.io/cloneFallbackAfter";
    /// On a StorageProfile: no PVC of the class is smaller.
    pub const MINIMUM_CLAIM_SIZE: &str = "cdi.kubevirt.io/minimumSupportedPvcSize";
    /// `true` on a StorageProfile: DataImportCrons import into ReadWriteOnce PVCs.
    pub const CRON_READ_WRITE_ONCE: &str = "cdi.kubevirt.io/useReadWriteOnceForDataImportCron";
    /// On a StorageProfile: the class of the snapshots that DataImportCrons keep.
    pub const CRON_SNAPSHOT_CLASS: &str = "cdi.kubevirt.io/snapshotClassForDataImportCron";
    /// `true` on a StorageClass: the default for disks of virtual machines.
    pub const DEFAULT_VIRT_CLASS: &str = "storageclass.kubevirt.io/is-default-virt-class";
    /// `true` on a StorageClass: the default.
    pub const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
    /// `true` on a VolumeSnapshotClass: the default.
    pub const DEFAULT_SNAPSHOT_CLASS: &str = "snapshot.storage.kubernetes.io/is-default-class";
    /// The node that the scheduler chose for the PVC's consumer.
    pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
    /// Priority class of worker pods.
    pub const PRIORITY_CLASS: &str = "cdi.kubevirt.io/storage.pod.priorityclassname";
    /// Service account of worker pods.
    pub const SERVICE_ACCOUNT: &str = "cdi.kubevirt.io/storage.pod.serviceAccountName";
    /// Networks of worker pods.
    pub const MULTUS_NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
    /// The default network of worker pods.
    pub const MULTUS_DEFAULT_NETWORK: &str = "v1.multus-cni.io/default-network";
    /// Whether Istio injects its proxy into worker pods. Default: `false`.
    pub const ISTIO_INJECT: &str = "sidecar.istio.io/inject";
    /// Whether Linkerd injects its proxy into worker pods. Default: `disabled`.
    pub const LINKERD_INJECT: &str = "linkerd.io/inject";
    /// On the CDI object: its `spec.config` replaces an edited CDIConfig.
    pub const CONFIG_AUTHORITY: &str = "cdi.kubevirt.io/configAuthority";
    /// `true` on a DataVolume: an image that a DataImportCron of its namespace has imported already is cloned, not fetched.
    pub const REUSE_GOLDEN_IMAGE: &str = "cdi.kubevirt.io/storage.import.reuseGoldenImage";
    /// `true` on a DataVolume: it is deleted `dataVolumeTTLSeconds` after completion, if that is set, and its PVC
    /// stays. Written at the start if the setting exists; `false` before that keeps the DataVolume.
    pub const DELETE_AFTER_COMPLETION: &str = "cdi.kubevirt.io/storage.deleteAfterCompletion";
    /// `raw` on a DataVolume or PVC: the imported or uploaded bytes are stored unchanged as the disk. Nothing is
    /// decompressed, converted, or refused because of its format. Any other value has no effect.
    pub const SOURCE_FORMAT: &str = "cdi.kubevirt.io/storage.sourceFormat";
}

/// The import: on a PVC by hand, or on the prime PVC of a populator.
pub mod import {
    /// The URL.
    pub const ENDPOINT: &str = "cdi.kubevirt.io/storage.import.endpoint";
    /// `http`, `s3`, `gcs`, `registry`, `imageio`, `vddk`, `none`; anything else counts as `http`.
    pub const SOURCE: &str = "cdi.kubevirt.io/storage.import.source";
    /// The Secret with credentials.
    pub const SECRET_NAME: &str = "cdi.kubevirt.io/storage.import.secretName";
    /// The ConfigMap with additional CAs to trust.
    pub const CERT_CONFIG_MAP: &str = "cdi.kubevirt.io/storage.import.certConfigMap";
    /// `algorithm:hex` of the bytes on the wire.
    pub const CHECKSUM: &str = "cdi.kubevirt.io/storage.import.checksum";
    /// `true`: the server's certificate is not verified.
    pub const INSECURE_SKIP_VERIFY: &str = "cdi.kubevirt.io/storage.import.insecureSkipVerify";
    /// With `.<n>`: a request header.
    pub const EXTRA_HEADERS: &str = "cdi.kubevirt.io/storage.import.extraHeaders";
    /// With `.<n>`: a Secret of request headers.
    pub const SECRET_EXTRA_HEADERS: &str = "cdi.kubevirt.io/storage.import.secretExtraHeaders";
    /// ID of an oVirt disk.
    pub const DISK_ID: &str = "cdi.kubevirt.io/storage.import.diskId";
    /// The virtual machine of VMware.
    pub const UUID: &str = "cdi.kubevirt.io/storage.import.uuid";
    /// The disk of VMware.
    pub const BACKING_FILE: &str = "cdi.kubevirt.io/storage.import.backingFile";
    /// Fingerprint of the VMware server's certificate.
    pub const VDDK_THUMBPRINT: &str = "cdi.kubevirt.io/storage.import.vddk.thumbprint";
    /// `pod` or `node`.
    pub const REGISTRY_METHOD: &str = "cdi.kubevirt.io/storage.import.registryImportMethod";
    /// `true`: the endpoint names an image stream.
    pub const REGISTRY_IMAGE_STREAM: &str = "cdi.kubevirt.io/storage.import.registryImageStream";
    /// Architecture to choose from an image index.
    pub const REGISTRY_ARCHITECTURE: &str =
        "cdi.kubevirt.io/storage.import.registryImageArchitecture";
    /// Name of the worker pod.
    pub const POD_NAME: &str = "cdi.kubevirt.io/storage.import.importPodName";
    /// `true`: the worker needs scratch space.
    pub const REQUIRES_SCRATCH: &str = "cdi.kubevirt.io/storage.import.requiresScratch";
    /// `true`: the worker was OOM-killed and has to use O_DIRECT.
    pub const REQUIRES_DIRECT_IO: &str = "cdi.kubevirt.io/storage.import.requiresDirectIo";
    /// `true`: the import is not retried.
    pub const FATAL_ERROR: &str = "cdi.kubevirt.io/storage.import.fatalError";
    /// On a VolumeSnapshot: mode of the volume it was taken of.
    pub const SOURCE_VOLUME_MODE: &str = "cdi.kubevirt.io/storage.import.sourceVolumeMode";
    /// On a PVC or VolumeSnapshot of a DataImportCron: a token of the controller that names the object by UID, the
    /// DataImportCron by UID and the digest of the image. Only an image with it is reused
    /// ([`REUSE_GOLDEN_IMAGE`](super::request::REUSE_GOLDEN_IMAGE)).
    pub const GOLDEN_IMAGE_PROOF: &str = "cdi.kubevirt.io/storage.import.goldenImageProof";
    /// On a VolumeSnapshot: the size to restore it to.
    pub const ADVISED_RESTORE_SIZE: &str = "cdi.kubevirt.io/storage.import.advisedRestoreSize";
}

/// Annotations of DataImportCrons.
pub mod cron {
    /// Digest of the image that should be imported.
    pub const DESIRED_DIGEST: &str = "cdi.kubevirt.io/storage.import.sourceDesiredDigest";
    /// Pull reference of the image that an image stream names.
    pub const IMAGE_STREAM_DOCKER_REF: &str = "cdi.kubevirt.io/storage.import.imageStreamDockerRef";
    /// Time of the next poll.
    pub const NEXT_TIME: &str = "cdi.kubevirt.io/storage.import.nextCronTime";
    /// Time of the last poll.
    pub const LAST_TIME: &str = "cdi.kubevirt.io/storage.import.lastCronTime";
    /// Storage class of the current import.
    pub const STORAGE_CLASS: &str = "cdi.kubevirt.io/storage.import.storageClass";
    /// When an import was used last.
    pub const LAST_USE_TIME: &str = "cdi.kubevirt.io/storage.import.lastUseTime";
    /// Set by the administrator on a Secret of the installation: the namespaces whose DataImportCrons may have it sent to a source that
    /// they name, separated by commas; `*`: all of them.
    pub const POLL_FROM: &str = "cdi.kubevirt.io/pollFrom";
    /// Set by the user: digest to import even if a newer image exists, such as one to roll back to.
    pub const PINNED_DIGEST: &str = "cdi.kubevirt.io/storage.import.pinnedDigest";
    /// Set by the user: URL of a file of checksums (such as SHA256SUMS) that determines whether an image of a web
    /// server or an object store is new.
    pub const CHECKSUMS_URL: &str = "cdi.kubevirt.io/storage.import.checksumsUrl";
}

/// State that controllers write on PVCs and other objects.
pub mod state {
    /// On the CDIConfig: SHA-256 of the spec that the controller wrote last. Another spec was edited.
    pub const CONTROLLER_CONFIG: &str = "cdi.kubevirt.io/controllerConfig";
    /// On the CDIConfig: the `dataVolumeTTLSeconds` that was there before the installation, which does not count; or `none`.
    pub const INHERITED_TTL: &str = "cdi.kubevirt.io/inheritedDataVolumeTTLSeconds";
    /// On a ConfigMap of the installation: `namespace/name` of the one of the platform that it was copied from.
    pub const COPY_OF: &str = "cdi.kubevirt.io/copyOf";
    /// Phase of the worker; `Succeeded`: the PVC is filled.
    pub const POD_PHASE: &str = "cdi.kubevirt.io/storage.pod.phase";
    /// Whether the upload server takes requests.
    pub const POD_READY: &str = "cdi.kubevirt.io/storage.pod.ready";
    /// How often the worker was started again.
    pub const POD_RESTARTS: &str = "cdi.kubevirt.io/storage.pod.restarts";
    /// `false`: no node takes the worker.
    pub const POD_SCHEDULABLE: &str = "cdi.kubevirt.io/storage.pod.schedulable";
    /// The upload server's pod and service.
    pub const UPLOAD_POD_NAME: &str = "cdi.kubevirt.io/storage.uploadPodName";
    /// The name that the upload server expects in its client's certificate.
    pub const UPLOAD_CLIENT_NAME: &str = "cdi.kubevirt.io/uploadClientName";
    /// The pod that reads a clone's source.
    pub const CLONE_SOURCE_POD_NAME: &str = "cdi.kubevirt.io/storage.sourceClonePodName";
    /// Status of the condition `Running`.
    pub const RUNNING: &str = "cdi.kubevirt.io/storage.condition.running";
    /// Its message.
    pub const RUNNING_MESSAGE: &str = "cdi.kubevirt.io/storage.condition.running.message";
    /// Its reason.
    pub const RUNNING_REASON: &str = "cdi.kubevirt.io/storage.condition.running.reason";
    /// Whether the source's side of a clone runs.
    pub const SOURCE_RUNNING: &str = "cdi.kubevirt.io/storage.condition.source.running";
    /// Its message.
    pub const SOURCE_RUNNING_MESSAGE: &str =
        "cdi.kubevirt.io/storage.condition.source.running.message";
    /// Its reason.
    pub const SOURCE_RUNNING_REASON: &str =
        "cdi.kubevirt.io/storage.condition.source.running.reason";
    /// Status of the condition `Bound`.
    pub const BOUND: &str = "cdi.kubevirt.io/storage.condition.bound";
    /// Its message.
    pub const BOUND_MESSAGE: &str = "cdi.kubevirt.io/storage.condition.bound.message";
    /// Its reason.
    pub const BOUND_REASON: &str = "cdi.kubevirt.io/storage.condition.bound.reason";
    /// Whether preallocation is requested.
    pub const PREALLOCATION_REQUESTED: &str = "cdi.kubevirt.io/storage.preallocation.requested";
    /// `true`: the disk is preallocated.
    pub const PREALLOCATION: &str = "cdi.kubevirt.io/storage.preallocation";
    /// The checkpoint that is being imported.
    pub const CHECKPOINT_CURRENT: &str = "cdi.kubevirt.io/storage.checkpoint.current";
    /// The checkpoint before it.
    pub const CHECKPOINT_PREVIOUS: &str = "cdi.kubevirt.io/storage.checkpoint.previous";
    /// Whether this is the final stage.
    pub const CHECKPOINT_FINAL: &str = "cdi.kubevirt.io/storage.checkpoint.final";
    /// With `.<checkpoint>`: the pod that imported it.
    pub const CHECKPOINT_COPIED: &str = "cdi.kubevirt.io/storage.checkpoint.copied";
    /// The pod of the latest stage.
    pub const CHECKPOINT_POD_ID: &str = "cdi.kubevirt.io/storage.checkpoint.pod.id";
    /// `true`: all stages are done.
    pub const CHECKPOINT_DONE: &str = "cdi.kubevirt.io/storage.checkpoint.done";
    /// The host that VMware's library talked to.
    pub const VDDK_HOST: &str = "cdi.kubevirt.io/storage.pod.vddk.host";
    /// Version of VMware's library.
    pub const VDDK_VERSION: &str = "cdi.kubevirt.io/storage.pod.vddk.version";
    /// `12.34%`, `N/A`, `100.0%`.
    pub const POPULATOR_PROGRESS: &str = "cdi.kubevirt.io/storage.populator.progress";
    /// The prime PVC of this target PVC.
    pub const PRIME: &str = "cdi.kubevirt.io/storage.populator.pvcPrime";
    /// On a prime PVC: the kind of its populator source.
    pub const POPULATOR_KIND: &str = "cdi.kubevirt.io/storage.populator.kind";
    /// JSON list of names of volumes that may be bound.
    pub const PERSISTENT_VOLUME_LIST: &str = "cdi.kubevirt.io/storage.persistentVolumeList";
    /// UID of the DataVolume that the PVC was created for.
    pub const CREATED_FOR_DATA_VOLUME: &str = "cdi.kubevirt.io/createdForDataVolume";
    /// `copy`, `snapshot` or `csi-clone`.
    pub const CLONE_TYPE: &str = "cdi.kubevirt.io/cloneType";
    /// Why it is `copy`.
    pub const CLONE_FALLBACK_REASON: &str = "cdi.kubevirt.io/cloneFallbackReason";
    /// Phase of a clone.
    pub const CLONE_PHASE: &str = "cdi.kubevirt.io/clonePhase";
    /// On the target of a host-assisted copy: `true` if one pod mounts both volumes, `false` if no node could mount both.
    pub const CLONE_ON_ONE_NODE: &str = "cdi.kubevirt.io/cloneBeside";
    /// On the target of a host-assisted copy: the snapshot, if the copied PVC was restored from one.
    pub const CLONE_SOURCE_SNAPSHOT: &str = "cdi.kubevirt.io/cloneSourceSnapshot";
    /// Why a clone is stuck.
    pub const CLONE_ERROR: &str = "cdi.kubevirt.io/cloneError";
    /// Namespace of the VolumeCloneSource.
    pub const DATA_SOURCE_NAMESPACE: &str = "cdi.kubevirt.io/dataSourceNamespace";
    /// The extended clone token.
    pub const EXTENDED_CLONE_TOKEN: &str = "cdi.kubevirt.io/storage.extended.clone.token";
    /// `true`: the copy is complete.
    pub const CLONE_OF: &str = "k8s.io/CloneOf";
    /// `namespace/name` of an owner in another namespace.
    pub const OWNED_BY_DATA_VOLUME: &str = "cdi.kubevirt.io/ownedByDataVolume";
    /// UID of the object whose progress this is.
    pub const OWNER_UID: &str = "cdi.kubevirt.io/ownerUID";
    /// On a clone's source pod: `namespace/name` of the target.
    pub const OWNER_REF: &str = "cdi.kubevirt.io/storage.ownerRef";
    /// Kind of the object that events belong to.
    pub const EVENTS_SOURCE_KIND: &str = "cdi.kubevirt.io/events.source.kind";
    /// Name of the object that events belong to.
    pub const EVENTS_SOURCE: &str = "cdi.kubevirt.io/events.source";
    /// `yes`: created by a controller.
    pub const CREATED_BY_CONTROLLER: &str = "cdi.kubevirt.io/storage.createdByController";
    /// `yes`: created by the upload controller.
    pub const CREATED_BY_UPLOAD_CONTROLLER: &str =
        "cdi.kubevirt.io/storage.createdByUploadController";
    /// Ports that OVN-Kubernetes leaves open.
    pub const OVN_OPEN_PORTS: &str = "k8s.ovn.org/open-default-ports";
    /// `*`: OpenShift looks image streams up.
    pub const RESOLVE_NAMES: &str = "alpha.image.policy.openshift.io/resolve-names";
    /// Size of a source's disk; the prefix is misspelt on the wire.
    pub const SOURCE_VIRTUAL_SIZE: &str = "cdi.Kubervirt.io/virtualSize";
    /// Capacity of the source when its size was found; the prefix is misspelt on the wire.
    pub const SOURCE_CAPACITY: &str = "cdi.Kubervirt.io/sourceCapacity";
    /// The ObjectTransfer that holds this object.
    pub const OBJECT_TRANSFER_NAME: &str = "cdi.kubevirt.io/objectTransferName";
    /// On PVCs of in-tree provisioners: the driver that took over.
    pub const MIGRATED_TO: &str = "pv.kubernetes.io/migrated-to";
}

/// Annotations of certificates and pods of the installation.
pub mod operator {
    /// The lifetime that a certificate was created for, as JSON.
    pub const CERT_CONFIG: &str = "operator.cdi.kubevirt.io/certConfig";
    /// Start of a certificate's validity, in RFC 3339.
    pub const CERT_NOT_BEFORE: &str = "auth.openshift.io/certificate-not-before";
    /// End of a certificate's validity, in RFC 3339.
    pub const CERT_NOT_AFTER: &str = "auth.openshift.io/certificate-not-after";
    /// Common name of the CA.
    pub const CERT_ISSUER: &str = "auth.openshift.io/certificate-issuer";
    /// Names in a certificate.
    pub const CERT_HOSTNAMES: &str = "auth.openshift.io/certificate-hostnames";
    /// The security context constraint that a pod requires.
    pub const REQUIRED_SCC: &str = "openshift.io/required-scc";
}
