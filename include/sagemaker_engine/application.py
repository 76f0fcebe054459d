"""WSGI application with all services of one engine."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from sagemaker_engine.access.asks import RequestScope
from sagemaker_engine.access.control import AccessControl
from sagemaker_engine.api.automl.jobs import AutoMLJobs
from sagemaker_engine.api.context import ApiContext, Preconditions
from sagemaker_engine.api.processing_jobs import ProcessingJobs
from sagemaker_engine.api.registry.endpoints import Endpoints, configs_of
from sagemaker_engine.api.registry.groups import ModelPackageGroups
from sagemaker_engine.api.registry.models import Models, models_of
from sagemaker_engine.api.registry.packages import ModelPackages
from sagemaker_engine.api.registry.tables import RegistryTables
from sagemaker_engine.api.searches import make_ports
from sagemaker_engine.api.tags import Tags
from sagemaker_engine.api.training.jobs import TrainingJobs
from sagemaker_engine.api.training_plans import TrainingPlans
from sagemaker_engine.api.tuning.jobs import TuningJobs
from sagemaker_engine.automl.rounds import AutoMLSearch
from sagemaker_engine.automl.tables import AutoMLTables
from sagemaker_engine.coverage import answered, refusals
from sagemaker_engine.faults.api_faults import answer_fault
from sagemaker_engine.faults.s3_faults import find_fault
from sagemaker_engine.faults.store import FaultStore
from sagemaker_engine.http.gateway import ControlRoute, Gateway
from sagemaker_engine.logs.handlers import LogsApi
from sagemaker_engine.logs.log_folder import LogFolder
from sagemaker_engine.plans.clock import FILE as PLANS_FILE, PlanClock
from sagemaker_engine.plans.tables import PlanTables
from sagemaker_engine.s3.application import S3Application
from sagemaker_engine.searches.thread import SearchThread
from sagemaker_engine.services.container_registry import ContainerRegistry
from sagemaker_engine.services.metric_feed import MetricFeed
from sagemaker_engine.services.moto import IamApplication
from sagemaker_engine.services.quota_api import ServiceQuotas
from sagemaker_engine.services.quotas import Quotas
from sagemaker_engine.services.runtime import RuntimeServices
from sagemaker_engine.tuning.rounds import TuningSearch
from sagemaker_engine.tuning.tables import TuningTables
from sagemaker_engine.wire.json_service import JsonService
from sagemaker_engine.wire.model import load_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from wsgiref.types import WSGIApplication

    from sagemaker_engine.http.host_names import HostNames
    from sagemaker_engine.s3.object_store import ObjectStore
    from sagemaker_engine.services.moto import MotoBackend
    from sagemaker_engine.state.jobs import ResourceKind
    from sagemaker_engine.state.settings import EngineSettings
    from sagemaker_engine.state.store import JobStore


def make_application(
    settings: EngineSettings,
    *,
    store: JobStore,
    objects: ObjectStore,
    moto: MotoBackend,
    launch: Callable[[ResourceKind, str], None],
    hosts: HostNames,
) -> tuple[WSGIApplication, tuple[SearchThread[Any, Any], ...]]:
    """Return (application, threads) of one engine.

    The application answers all requests to the engine's port. The threads, which are not started, advance its tuning
    jobs and AutoML jobs.
    """
    quotas = Quotas(path=settings.root / "quotas.json")
    plan_clock = PlanClock(path=settings.root / PLANS_FILE)
    context = ApiContext(
        settings=settings,
        store=store,
        preconditions=Preconditions(objects, moto),
        launch=launch,
        clock=time.time,
        quotas=quotas,
        plans=PlanTables(store.database),
        plan_clock=plan_clock,
    )
    fault_store = FaultStore(settings.root)
    tables = TuningTables(store.database)
    tuning_searches = SearchThread(TuningSearch, make_ports(context, tables, TuningSearch.kind))
    tuning = TuningJobs(context=context, tables=tables, wake=tuning_searches.wake)
    automl_tables = AutoMLTables(store.database)
    automl_searches = SearchThread(
        AutoMLSearch, make_ports(context, automl_tables, AutoMLSearch.kind)
    )
    automl = AutoMLJobs(context=context, tables=automl_tables, wake=automl_searches.wake)
    services = (
        _sagemaker(context, tuning, automl),
        _logs(settings, moto),
        _service_quotas(context, moto),
        _container_registry(context),
    )
    permissions = AccessControl(
        settings.root / "access.json",
        RequestScope(account=settings.account, region=settings.region),
        tags_of=Tags(context).of,
        has_bucket=context.preconditions.has_bucket,
    )
    metrics = MetricFeed(settings=settings, store=store, moto=moto)
    gateway = Gateway(
        by_target={service.model.target_prefix: service for service in services},
        by_scope={
            "iam": IamApplication(moto),
            "monitoring": metrics,
            "sagemaker": RuntimeServices("sagemaker"),
        },
        s3=S3Application(objects, find_fault=partial(find_fault, fault_store)),
        moto=moto,
        own={
            "/_engine/faults": ControlRoute(
                put=fault_store.put, delete=fault_store.clear, get=fault_store.report
            ),
            "/_engine/quotas": ControlRoute(
                put=quotas.change, delete=partial(quotas.change, {}), get=quotas.changed
            ),
            "/_engine/training-plans": ControlRoute(
                put=plan_clock.change, delete=plan_clock.reset, get=plan_clock.report
            ),
            "/_engine/access": ControlRoute(
                put=permissions.put, delete=permissions.clear, get=permissions.report
            ),
        },
        refusers=(permissions.refuse, partial(answer_fault, fault_store)),
        hosts=hosts,
    )
    return gateway, (tuning_searches, automl_searches)


def _sagemaker(context: ApiContext, tuning: TuningJobs, automl: AutoMLJobs) -> JsonService:
    tables = RegistryTables(context.store.database)
    models = models_of(context, tables)
    handlers = {
        **TrainingJobs(context).handlers(),
        **TrainingPlans(context).handlers(),
        **ProcessingJobs(context).handlers(),
        **tuning.handlers(),
        **automl.handlers(),
        **Tags(context).handlers(),
        **ModelPackageGroups(context, tables).handlers(),
        **ModelPackages(context, tables).handlers(),
        **Models(context, models).handlers(),
        **Endpoints(context, configs_of(context, tables), models).handlers(),
    }
    if undeclared := set(handlers) ^ set(answered()):
        raise LookupError(
            f"coverage.py and the handlers differ in {', '.join(sorted(undeclared))}; add these operations to both"
        )
    return JsonService(
        model=load_model("sagemaker"),
        handlers=handlers,
        default_region=context.settings.region,
        rejected=refusals(),
    )


def _service_quotas(context: ApiContext, moto: MotoBackend) -> JsonService:
    settings = context.settings
    return JsonService(
        model=load_model("service-quotas"),
        handlers=ServiceQuotas(quotas=context.quotas, account=settings.account).handlers(),
        behind=moto,
        default_region=settings.region,
    )


def _container_registry(context: ApiContext) -> JsonService:
    settings = context.settings
    registry = ContainerRegistry(account=settings.account, image_files=settings.image_files)
    return JsonService(
        model=load_model("ecr"), handlers=registry.handlers(), default_region=settings.region
    )


def _logs(settings: EngineSettings, moto: MotoBackend) -> JsonService:
    return JsonService(
        model=load_model("logs"),
        handlers=LogsApi(LogFolder(settings.root), settings.account).handlers(),
        behind=moto,
        default_region=settings.region,
    )
